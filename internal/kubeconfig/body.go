// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// A body is that of an answer. It ends with an ExcessError where it is too large.
type body struct {
	io.ReadCloser
	*boundary
	request *http.Request
	done    <-chan struct{}
	cancel  context.CancelFunc
	holding holding
	frames  *frames // of a watch; nil for other answers
	err     error
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	var weight int
	if b.frames != nil {
		weight = b.frames.add(p[:n])
		b.holding.weight = b.frames.weight
	} else {
		weight = weigh(p[:n])
		b.holding.weight += weight
	}
	if b.holding.weight > maxAnswer {
		b.err = b.exceeded(b.request, fmt.Sprintf("is larger than the %d MB that are let in", maxAnswer>>20))
		return 0, b.err
	}
	if !b.allowance.hold(&b.holding, b.done) || !b.allowance.draw(weight, b.done) {
		b.err = context.DeadlineExceeded
		return 0, b.err
	}
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.cancel()
	b.allowance.end(&b.holding)
	return b.ReadCloser.Close()
}
