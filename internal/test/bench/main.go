// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	parts                                          []string
	objects, namespaces, singles, settled, writers int
	rounds, crowdSize, exports, larges, refusals   int
	idle                                           time.Duration
	csv                                            string

	idealApp, idealControl string // kubeconfigs of a yardstick
	idealQPS               float64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	if o.idealApp != "" {
		return o.ideal(ctx)
	}
	return o.measure(ctx)
}

func parse(args []string, usage io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(usage)
	parts := fs.String("parts", strings.Join(partNames(), ","), "what to measure")
	fs.IntVar(&o.objects, "objects", 2000, "objects in each burst")
	fs.IntVar(&o.namespaces, "namespaces", 20, "namespaces of the App Cluster over which objects are spread")
	fs.IntVar(&o.singles, "singles", 200, "objects sent one at a time, for latency")
	fs.IntVar(&o.settled, "settled", 10_000, "objects at rest")
	fs.IntVar(&o.larges, "larges", 100, "objects with long lists")
	fs.IntVar(&o.refusals, "refusals", 10_000, "objects that are refused")
	fs.DurationVar(&o.idle, "idle", 250*time.Second, "how long to leave them at rest; above two minutes the live heap is known, above four what it has given back")
	fs.IntVar(&o.rounds, "rounds", 2, "turns of each contestant")
	fs.IntVar(&o.writers, "writers", 32, "parallel writers of the load")
	fs.IntVar(&o.crowdSize, "tenants", 1000, "tenants of one backend")
	fs.IntVar(&o.exports, "exports", 5, "exports of each, at most 5")
	fs.StringVar(&o.csv, "csv", "", "also write everything measured to this file")
	fs.StringVar(&o.idealApp, "ideal-app", "", "be a yardstick between the clusters of this kubeconfig and -ideal-control-plane's, as bench starts one")
	fs.StringVar(&o.idealControl, "ideal-control-plane", "", "see -ideal-app")
	fs.Float64Var(&o.idealQPS, "ideal-qps", -1, "rate limit of the yardstick; negative means none")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.parts = strings.Split(*parts, ",")
	return o, o.validate(fs.Args())
}

func (o options) validate(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unknown argument %q", rest[0])
	}
	for _, p := range o.parts {
		if !slices.Contains(partNames(), p) {
			return fmt.Errorf("unknown part %q, there are %s", p, strings.Join(partNames(), ", "))
		}
	}
	for name, n := range map[string]int{
		"objects": o.objects, "namespaces": o.namespaces, "singles": o.singles, "settled": o.settled, "rounds": o.rounds, "writers": o.writers,
		"tenants": o.crowdSize, "exports": o.exports, "larges": o.larges, "refusals": o.refusals,
	} {
		if n < 1 {
			return fmt.Errorf("-%s is %d, want at least 1", name, n)
		}
	}
	return nil
}
