// SPDX-License-Identifier: Apache-2.0

// Konnector keeps the objects of bound APIs in step between this App Cluster and
// the Control Plane Clusters that offer them.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/version"
	"github.com/klutch-go/sdk/klutch"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

const usage = `Konnector keeps the objects of bound APIs in step between this App Cluster and the
Control Plane Clusters that offer them: it carries the specs of claims there, and
brings status and credentials back. In the cluster, where kubectl bind konnector
install puts it, it needs no flag:

  konnector

On a laptop, where port 8080 may be taken:

  konnector --kubeconfig ~/.kube/config --health-address 127.0.0.1:8082

What it keeps in step is said by the APIServiceBindings of namespace klutch-bind,
which kubectl bind makes, and a kubeconfig Secret there leads to each platform. Of
several replicas one works, which holds the Lease. Whether all is well is said by
kubectl bind status and doctor, and by /metrics of --health-address.

`

// Exit codes, as those of kubectl bind.
const (
	exitError = 1
	exitUsage = 2
)

// errUsage says that the command line is wrong.
var errUsage = errors.New("see konnector --help")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exit(run(ctx, os.Args[1:], os.Stderr), os.Stderr)
	stop()
	os.Exit(code)
}

func exit(err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	_, _ = fmt.Fprintln(stderr, "konnector:", err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitError
}

// maxVerbosity is the level above which client-go logs requests and answers, tokens
// and credentials among it.
const maxVerbosity = 5

type flags struct {
	kubeconfig    string
	deletionLimit int
	verbosity     int
	version       bool
	konnector     klutch.Konnector
}

func parse(args []string, stderr io.Writer) (flags, error) {
	f := flags{konnector: klutch.Konnector{Identity: os.Getenv("POD_NAME")}}
	fs := flag.NewFlagSet("konnector", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "the App Cluster; empty means the cluster that this runs in")
	fs.StringVar(&f.konnector.LeaseName, "lease-name", v1alpha1.LeaseName, "the Lease by which one of several replicas works")
	fs.StringVar(&f.konnector.LeaseNamespace, "lease-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), v1alpha1.Namespace), "its namespace")
	fs.StringVar(&f.konnector.HealthAddress, "health-address", "127.0.0.1:8080", "where /livez, /readyz, /healthz and /metrics are served; empty means nowhere")
	fs.DurationVar(&f.konnector.Options.HeartbeatInterval, "heartbeat-interval", bind.DefaultHeartbeatInterval, "how often backends may expect to hear of this konnector")
	fs.IntVar(&f.deletionLimit, "deletion-limit", 0, "how many objects of a binding may be deleted within five minutes; more are held until released; 0 means one in twenty, at least ten, and -1 any number")
	fs.BoolVar(&f.konnector.Options.CRDOwnerReferences, "crd-owner-references", false, "set on all CRDs of bindings the owner reference that Klutch's command line tool and konnector require; CRDs of bindings that Klutch's tool made have it always")
	fs.IntVar(&f.verbosity, "v", 0, "log level: 0 is what an operator acts on, 4 shows traffic")
	fs.BoolVar(&f.version, "version", false, "print the version and exit")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return f, err
	case err != nil:
		return f, fmt.Errorf("%w: %w", err, errUsage)
	case fs.NArg() > 0:
		return f, fmt.Errorf("unknown argument %q: %w", fs.Arg(0), errUsage)
	}
	return f, nil
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	f, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if f.version {
		fmt.Println(version.Text())
		return nil
	}
	level := slog.Level(-min(f.verbosity, maxVerbosity))
	log := logr.FromSlogHandler(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level}))
	if f.konnector.Config, err = config(f.kubeconfig); err != nil {
		return err
	}
	f.configure()
	return f.konnector.Run(logr.NewContext(ctx, log))
}

// configure hands each Sync its deletion limit, and plugs Prometheus in.
func (f *flags) configure() {
	f.konnector.Options.Sync = func(_ string, o *klutchsync.Options) { o.DeletionLimit = f.deletionLimit }
	f.konnector = f.konnector.Measured()
}

func config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
