// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// others is how many requests to write objects of our group both API servers say that
// they have answered, those of the driver left out: what the contestant has sent,
// whether or not it changed anything. It waits until that stands still.
func (d *driver) others(ctx context.Context) (int, error) {
	const still, tries = 300 * time.Millisecond, 50
	before := -1
	for range tries {
		now, err := d.othersNow(ctx)
		if err != nil || now == before {
			return now, err
		}
		before = now
		wait(ctx, still)
	}
	return 0, errors.New("the contestant does not cease to write")
}

func (d *driver) othersNow(ctx context.Context) (int, error) {
	total := 0
	for _, a := range []*api{d.app, d.control} {
		stream, err := a.client.Get().AbsPath("/metrics").Stream(ctx)
		if err != nil {
			return 0, fmt.Errorf("metrics: %w", err)
		}
		n, err := writeRequests(stream)
		_ = stream.Close()
		if err != nil {
			return 0, fmt.Errorf("metrics: %w", err)
		}
		total += n
	}
	return total - int(d.sent()), nil
}

var writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

// writeRequests sums up the requests in an API server's metrics that write objects of
// our group.
func writeRequests(metrics io.Reader) (int, error) { return countRequests(metrics, writeVerbs) }

// countRequests sums up those with some verbs.
func countRequests(metrics io.Reader, verbs []string) (int, error) {
	total := 0.0
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok || label(labels, "group") != group || !slices.Contains(verbs, label(labels, "verb")) {
			continue
		}
		n, err := strconv.ParseFloat(labels[strings.LastIndexByte(labels, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return int(total), lines.Err()
}

// label is the value of a label of a metric.
func label(labels, name string) string {
	for l := range strings.SplitSeq(labels, ",") {
		if v, ok := strings.CutPrefix(l, name+`="`); ok {
			v, _, _ = strings.Cut(v, `"`)
			return v
		}
	}
	return ""
}
