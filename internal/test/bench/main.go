// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/klutch-go/sdk/internal/test/bench/yardstick"
	"github.com/klutch-go/sdk/internal/test/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	if o.be != "" {
		return o.contestant(ctx)
	}
	return o.measure(ctx)
}

// contestant is a contestant that this program starts of itself, until ctx is done.
func (o options) contestant(ctx context.Context) error {
	if o.be == engine {
		return yardstick.RunSync(ctx, o.beside)
	}
	return yardstick.Run(ctx, o.beside)
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
	fs.StringVar(&o.be, "be", "", "be a contestant, ideal or sync, between the clusters of -app and -control-plane, as bench starts one")
	fs.StringVar(&o.beside.App, "app", "", "kubeconfig, see -be")
	fs.StringVar(&o.beside.ControlPlane, "control-plane", "", "kubeconfig, see -be")
	fs.StringVar(&o.beside.Tenant, "tenant", "", "tenant namespace with the rights of which -be ideal works")
	fs.Float64Var(&o.beside.QPS, "qps", -1, "rate limit of -be ideal; negative means none")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.parts, o.beside.Resources = strings.Split(*parts, ","), bound()
	return o, o.validate(fs.Args())
}

func (o options) validate(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unknown argument %q", rest[0])
	}
	if !slices.Contains([]string{"", ideal, engine}, o.be) {
		return fmt.Errorf("unknown contestant %q, there are %s and %s", o.be, ideal, engine)
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

// A part is one thing that is measured, of one contestant at a time.
type part struct {
	name    string
	measure func(context.Context, contest) ([]figure, error)
	once    bool // in the first round only
	apart   bool // of what lies between klutch and ideal, too: package sync alone, and rights alone
	last    bool // after all others, and of klutch alone
	// alone, in place of measure, needs no konnector.
	alone func(context.Context, *bench) ([]figure, error)
}

func parts() []part {
	return []part{
		{name: "throughput", measure: throughput, apart: true},
		{name: "latency", measure: latency, apart: true},
		{name: "namespaces", measure: newNamespaces},
		{name: "writes", measure: writes, once: true},
		{name: "noise", measure: noise, once: true},
		{name: "silence", alone: silence, last: true},
		{name: "large", measure: large, last: true},
		{name: "refused", alone: beside(refused), last: true},
		{name: "settled", measure: settled, last: true},
		{name: "tenants", alone: tenants, last: true},
	}
}

func partNames() (names []string) {
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// beside is a part that needs a konnector, and the clusters beside it.
func beside(measure func(context.Context, contest, *bench) ([]figure, error)) func(context.Context, *bench) ([]figure, error) {
	return func(ctx context.Context, b *bench) (figures []figure, err error) {
		if err := b.Konnector.Start(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.Konnector.Stop()) }()
		return measure(ctx, contest{options: b.options, driver: b.driver, who: klutch, process: b.Konnector}, b)
	}
}

func (o options) measure(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &bench{options: o, begin: time.Now()}
	b.Stack, err = stack.Start(ctx, stack.Options{Step: b.say, Log: os.Stderr, Backend: []string{"--max-objects-per-namespace=-1"}})
	if b.Stack != nil {
		defer func() { _, _ = b.Stop(), b.Remove() }()
	}
	if err != nil {
		return err
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	err = b.contests(ctx)
	b.report.condition("took", "%s", time.Since(b.begin).Round(time.Second))
	b.report.condition("load average at the end", "%s", loadAverage())
	return errors.Join(err, b.write())
}

// A turn is what one contestant is measured in at a time.
type turn struct {
	part  part
	who   string
	round int
}

// turns are short, and those to compare follow each other, in turned order each other
// round: what else the machine does and how full the API servers get is then much the
// same for all.
func (o options) turns() (turns []turn) {
	for round := range o.rounds {
		for _, p := range parts() {
			if p.once && round > 0 || !slices.Contains(o.parts, p.name) || p.last {
				continue
			}
			all := []turn{{p, klutch, round}, {p, ideal, round}}
			if p.apart {
				all = slices.Insert(all, 1, turn{p, engine, round}, turn{p, rights, round})
			}
			if round%2 == 1 {
				slices.Reverse(all)
			}
			turns = append(turns, all...)
		}
	}
	for _, p := range parts() {
		switch {
		case !slices.Contains(o.parts, p.name):
		case p.name == "throughput":
			turns = append(turns, turn{p, limited, 0})
		case p.last:
			turns = append(turns, turn{p, klutch, 0})
		}
	}
	return turns
}

func (b *bench) contests(ctx context.Context) error {
	turns := b.turns()
	for i, t := range turns {
		b.say(fmt.Sprintf("Round %d: %s of %s.", t.round+1, t.part.name, t.who))
		if err := b.take(ctx, t); err != nil {
			return fmt.Errorf("%s of %s: %w", t.part.name, t.who, err)
		}
		if slices.ContainsFunc(turns[i+1:], func(o turn) bool { return o.part.name == t.part.name }) {
			continue
		}
		for _, line := range b.report.verdicts(t.part.name) {
			b.say(line)
		}
	}
	return nil
}

// take has one contestant measured while no other one runs.
func (b *bench) take(ctx context.Context, t turn) (err error) {
	if t.part.alone != nil {
		figures, err := t.part.alone(ctx, b)
		b.report.add(t.part.name, t.who, figures)
		return err
	}
	process, err := b.contestant(ctx, t.who)
	if err != nil {
		return err
	}
	if err := process.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	c := contest{options: b.options, driver: b.driver, who: t.who, round: t.round, process: process}
	if t.who == limited {
		c.objects = min(c.objects, 50)
	}
	figures, err := t.part.measure(ctx, c)
	b.report.add(t.part.name, t.who, figures)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, process.LastWords())
	}
	return nil
}
