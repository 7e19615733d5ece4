// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/cluster"
	"github.com/klutch-go/sdk/internal/stack"
)

//go:embed widgets.yaml
var offer string

var widgets = schema.GroupVersionResource{Group: "bench.example.org", Version: "v1", Resource: "widgets"}

// options are the flags.
type options struct {
	objects, namespaces, singles, writers int
	csv                                   string
	app, control                          string // of a yardstick
	qps                                   float64
}

func main() {
	var o options
	flag.IntVar(&o.objects, "objects", 2000, "objects in each burst")
	flag.IntVar(&o.namespaces, "namespaces", 1, "namespaces of the App Cluster over which the objects are spread")
	flag.IntVar(&o.singles, "singles", 50, "objects sent one at a time, for latency")
	flag.IntVar(&o.writers, "writers", 32, "parallel writers of the load")
	flag.StringVar(&o.csv, "csv", "", "also write the figures to this file")
	flag.StringVar(&o.app, "ideal-app", "", "be a yardstick between the clusters of this kubeconfig and -ideal-control-plane's, as bench starts one")
	flag.StringVar(&o.control, "ideal-control-plane", "", "see -ideal-app")
	flag.Float64Var(&o.qps, "ideal-qps", -1, "rate limit of the yardstick")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := o.measure
	if o.app != "" {
		run = o.ideal
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func (o options) ideal(ctx context.Context) error {
	var clients []dynamic.Interface
	for _, path := range []string{o.app, o.control} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return err
		}
		if config.QPS = float32(o.qps); o.qps > 0 {
			config.Burst = 2 * int(o.qps)
		}
		c, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	return runIdeal(ctx, clients[0], clients[1])
}

// A contestant is one konnector, as a process.
type contestant struct {
	name    string
	objects int
	process *stack.Process
}

func (o options) measure(ctx context.Context) (err error) {
	s, err := stack.Start(ctx, stack.Options{Step: func(what string) { fmt.Fprintln(os.Stderr, what) }, Log: os.Stderr})
	if s != nil {
		defer func() { _ = s.Stop(); _ = os.RemoveAll(s.Dir) }()
	}
	if err != nil {
		return err
	}
	if err := bindWidgets(ctx, s); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	yardstick := func(name string, qps string) *stack.Process {
		return &stack.Process{Name: name, Path: self, Dir: s.Dir, Args: []string{
			"-ideal-app", s.App.Kubeconfig(), "-ideal-control-plane", s.Control.Kubeconfig(), "-ideal-qps", qps,
		}}
	}
	rows := []row{}
	for _, c := range []contestant{
		{"klutch", o.objects, s.Konnector},
		{"ideal", o.objects, yardstick("ideal", "-1")},
		{"limited", min(o.objects, 50), yardstick("limited", "5")},
	} {
		fmt.Fprintf(os.Stderr, "Measuring %s with %d objects.\n", c.name, c.objects)
		f, err := o.contest(ctx, s, c)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", c.name, err, c.process.LastWords())
		}
		rows = append(rows, row{c, f})
	}
	return o.report(rows)
}

// contest measures one konnector while no other one runs.
func (o options) contest(ctx context.Context, s *stack.Stack, c contestant) (f figures, err error) {
	if c.process != s.Konnector {
		if err := c.process.Start(ctx); err != nil {
			return f, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := load{run: c.name, namespaces: o.namespaces, objects: c.objects, singles: min(o.singles, c.objects), writers: o.writers}
	if l.app, err = client(s.App); err != nil {
		return f, err
	}
	if l.control, err = client(s.Control); err != nil {
		return f, err
	}
	if err := l.makeNamespaces(ctx); err != nil {
		return f, err
	}
	f, err = l.drive(ctx, func() float64 { return memoryMB(c.process.PID()) })
	if stopErr := c.process.Stop(); err == nil {
		err = stopErr
	}
	return f, err
}

func client(c *cluster.Cluster) (dynamic.Interface, error) {
	config := c.Config()
	config.QPS = -1
	return dynamic.NewForConfig(config)
}

// bindWidgets offers the API and binds it, as a platform team and a developer would.
func bindWidgets(ctx context.Context, s *stack.Stack) error {
	var objects []*unstructured.Unstructured
	for doc := range strings.SplitSeq(offer, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			return err
		}
		objects = append(objects, u)
	}
	if err := stack.Apply(ctx, s.Control, objects...); err != nil {
		return err
	}
	if out := s.Bind(ctx, stack.Developer, "--service", "widgets.bench.example.org"); out.Code != 0 {
		return fmt.Errorf("kubectl bind ended with exit code %d:\n%s", out.Code, out.Stderr)
	}
	return nil
}

type row struct {
	contestant
	figures
}

var columns = []struct {
	title  string
	format string
	of     func(figures) float64
}{
	{"creates/s", "%.0f", func(f figures) float64 { return f.creates }},
	{"statuses/s", "%.0f", func(f figures) float64 { return f.statuses }},
	{"updates/s", "%.0f", func(f figures) float64 { return f.updates }},
	{"deletes/s", "%.0f", func(f figures) float64 { return f.deletes }},
	{"up p50 ms", "%.1f", func(f figures) float64 { return f.upP50 }},
	{"up p99 ms", "%.1f", func(f figures) float64 { return f.upP99 }},
	{"down p50 ms", "%.1f", func(f figures) float64 { return f.downP50 }},
	{"down p99 ms", "%.1f", func(f figures) float64 { return f.downP99 }},
	{"memory MB", "%.0f", func(f figures) float64 { return f.memoryMB }},
}

// report writes the figures as a table, the ratio to ideal below it, and as CSV.
func (o options) report(rows []row) error {
	table := [][]string{{"", "objects"}}
	for _, c := range columns {
		table[0] = append(table[0], c.title)
	}
	for _, r := range rows {
		line := []string{r.name, strconv.Itoa(r.objects)}
		for _, c := range columns {
			line = append(line, fmt.Sprintf(c.format, c.of(r.figures)))
		}
		table = append(table, line)
	}
	for _, against := range []int{1, 2} {
		line := []string{fmt.Sprintf("%s ÷ %s", rows[0].name, rows[against].name), ""}
		for _, c := range columns {
			line = append(line, fmt.Sprintf("%.2f", c.of(rows[0].figures)/c.of(rows[against].figures)))
		}
		table = append(table, line)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range table {
		_, _ = fmt.Fprintln(w, strings.Join(line, "\t")+"\t")
	}
	if err := w.Flush(); err != nil || o.csv == "" {
		return err
	}
	return writeCSV(o.csv, table)
}

func writeCSV(path string, table [][]string) error {
	var text strings.Builder
	if err := csv.NewWriter(&text).WriteAll(table); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

// memoryMB is the resident memory of a process; 0 where there is no /proc.
func memoryMB(pid int) float64 {
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer func() { _ = status.Close() }()
	text, err := io.ReadAll(status)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
			return n / 1024
		}
	}
	return 0
}
