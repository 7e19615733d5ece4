// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/internal/test/bench/yardstick"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// options are how large everything is, by the flags.
type options struct {
	parts                                          []string
	objects, namespaces, singles, settled, writers int
	rounds, crowdSize, exports, larges, refusals   int
	idle                                           time.Duration
	csv                                            string

	be     string // this program is this contestant
	beside yardstick.Options
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

// contestant is one as a process that does not run yet.
func (b *bench) contestant(ctx context.Context, who string) (*stack.Process, error) {
	if who == klutch {
		return b.Konnector, nil
	}
	as := yardstick.Options{App: b.App.Kubeconfig(), ControlPlane: b.Control.Kubeconfig()}
	if who == rights {
		var err error
		if as, err = identities(ctx, b.Stack); err != nil {
			return nil, err
		}
	}
	be := map[string][]string{
		engine: {"-be", engine}, rights: {"-be", ideal, "-tenant", as.Tenant}, ideal: {"-be", ideal}, limited: {"-be", ideal, "-qps", "5"},
	}[who]
	self, err := os.Executable()
	return &stack.Process{Name: who, Path: self, Dir: b.Dir, Args: append(be, "-app", as.App, "-control-plane", as.ControlPlane)}, err
}

// identities are those of klutch, as they are now: the account of the konnector, and the credential of
// its tenant, which is renewed now and then.
func identities(ctx context.Context, s *stack.Stack) (as yardstick.Options, err error) {
	i := slices.Index(s.Konnector.Args, "--kubeconfig")
	if i < 0 || i+1 == len(s.Konnector.Args) {
		return as, errors.New("the konnector has no kubeconfig")
	}
	as.App, as.ControlPlane = s.Konnector.Args[i+1], filepath.Join(s.Dir, "tenant.kubeconfig")
	if as.Tenant, err = s.Tenant(ctx); err != nil {
		return as, err
	}
	client, err := kubernetes.NewForConfig(s.Control.Config())
	if err != nil {
		return as, err
	}
	secret, err := client.CoreV1().Secrets(as.Tenant).Get(ctx, v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	if err != nil {
		return as, err
	}
	return as, os.WriteFile(as.ControlPlane, secret.Data[v1alpha1.KubeconfigKey], 0o600)
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
