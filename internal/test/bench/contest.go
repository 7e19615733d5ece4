// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klutch-go/sdk/internal/test/stack"
)

// A part is one thing that is measured, of one contestant at a time.
type part struct {
	name    string
	measure func(context.Context, contest) ([]figure, error)
	once    bool // in the first round only
	last    bool // after all others, and of klutch alone
	// alone, in place of measure, needs no konnector.
	alone func(context.Context, *bench) ([]figure, error)
}

func parts() []part {
	return []part{
		{name: "throughput", measure: throughput},
		{name: "latency", measure: latency},
		{name: "writes", measure: writes, once: true},
		{name: "noise", measure: noise, once: true},
		{name: "silence", alone: silence, last: true},
		{name: "large", measure: large, last: true},
		{name: "refused", alone: beside(refused), last: true},
		{name: "settled", measure: settled, last: true},
		{name: "tenants", alone: tenants, last: true},
	}
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

func partNames() (names []string) {
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// A contest is the turn of one contestant in one round. No other one runs then.
type contest struct {
	options
	*driver
	who     string
	round   int
	process *stack.Process
}

// batch is a batch of objects of a resource in all namespaces, named after what is
// done to them.
func (c contest) batch(what, resource string) batch {
	return batch{
		driver: c.driver, resource: resource, name: fmt.Sprintf("%s-%d-%s", c.who, c.round, what),
		size: 1, namespaces: c.namespaces,
	}
}

// A bench is a run of everything.
type bench struct {
	options
	*stack.Stack
	driver *driver
	report report
	begin  time.Time
}

func (o options) measure(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &bench{options: o, begin: time.Now()}
	b.Stack, err = stack.Start(ctx, stack.Options{Step: b.say, Log: os.Stderr, Backend: []string{"--max-objects-per-namespace=-1"}})
	if b.Stack != nil {
		defer func() { _ = b.Stop(); _ = os.RemoveAll(b.Dir) }()
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

func (b *bench) say(what string) {
	fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(b.begin).Seconds(), what)
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if err := bindAll(ctx, b.Stack); err != nil {
		return err
	}
	if err := b.Konnector.Stop(); err != nil { // until it is its turn
		return err
	}
	b.Konnector.Env = append(b.Konnector.Env, traceHeap)
	b.Konnector.Args = append(b.Konnector.Args, "--deletion-limit", "-1") // a load deletes all that it made
	if b.driver, err = newDriver(ctx, b.Stack, b.writers); err != nil {
		return err
	}
	namespaces := []string{noiseNamespace}
	for i := range b.namespaces {
		namespaces = append(namespaces, batch{namespaces: b.namespaces}.namespace(i))
	}
	if err := b.driver.makeNamespaces(ctx, namespaces...); err != nil {
		return err
	}
	return b.conditions(ctx)
}

// conditions are what the figures hold for.
func (b *bench) conditions(ctx context.Context) error {
	server, err := b.driver.app.client.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return err
	}
	b.report.condition("date", "%s", b.begin.Format("2006-01-02 15:04"))
	b.report.condition("machine", "%d cores for everything, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	b.report.condition("software", "%s, Kubernetes %s", runtime.Version(), gitVersion(server))
	b.report.condition("sizes", "%d objects by %d writers, %d one at a time, %d at rest; %d rounds",
		b.objects, b.writers, b.singles, b.settled, b.rounds)
	b.report.condition("load average at the start", "%s", loadAverage())
	return nil
}

func gitVersion(answer []byte) string {
	_, v, _ := strings.Cut(string(answer), `"gitVersion": "`)
	v, _, _ = strings.Cut(v, `"`)
	return v
}

// loadAverage tells whether others use the machine.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
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
			both := []turn{{p, klutch, round}, {p, ideal, round}}
			if round%2 == 1 {
				slices.Reverse(both)
			}
			turns = append(turns, both...)
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
	for _, t := range b.turns() {
		b.say(fmt.Sprintf("Round %d: %s of %s.", t.round+1, t.part.name, t.who))
		if err := b.take(ctx, t); err != nil {
			return fmt.Errorf("%s of %s: %w", t.part.name, t.who, err)
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
	process, err := b.contestant(t.who)
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

// contestant is one as a process that does not run yet.
func (b *bench) contestant(who string) (*stack.Process, error) {
	if who == klutch {
		return b.Konnector, nil
	}
	qps := map[string]string{ideal: "-1", limited: "5"}[who]
	self, err := os.Executable()
	return &stack.Process{Name: who, Path: self, Dir: b.Dir, Args: []string{
		"-ideal-app", b.App.Kubeconfig(), "-ideal-control-plane", b.Control.Kubeconfig(), "-ideal-qps", qps,
	}}, err
}

// write shows the table, and keeps the figures where asked to.
func (b *bench) write() error {
	if err := b.report.table(os.Stdout); err != nil || b.csv == "" {
		return err
	}
	file, err := os.OpenFile(b.csv, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(b.report.csv(file), file.Close())
}
