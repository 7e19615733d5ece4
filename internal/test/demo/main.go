// SPDX-License-Identifier: Apache-2.0

// Command demo shows the whole of Klutch on this machine: an application developer
// orders a database from the App Cluster, and it comes to be in the Control Plane
// Cluster. Every line that it prints was seen at an API server; a step that does
// not happen ends it with an error.
//
// With -once it ends after the show, otherwise it stays up to be played with. With
// -build it only compiles Kubernetes' servers, if this machine has not got them yet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/klutch-go/sdk/examples/catalog/engine"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

func main() {
	once := flag.Bool("once", false, "end after the show")
	build := flag.Bool("build", false, "only compile Kubernetes' servers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := start(ctx, *build, *once)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, build, once bool) error {
	if build {
		_, err := cluster.Build(ctx, os.Stderr)
		return err
	}
	return demo{os.Stdout, once, engine.Find}.run(ctx)
}

// A demo is one run of the show.
type demo struct {
	out  io.Writer
	once bool
	find func(dir string) (map[string]engine.Engine, error) // of data services
}

func (d demo) run(ctx context.Context) (err error) {
	data, remove, err := tempdir.Make("data") // the servers' user cannot enter the stack's
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	engines, err := d.find(data)
	if err != nil {
		return err
	}
	served := engines["postgresql"] != nil
	p := &printer{out: d.out}
	if served {
		p.title("Klutch: a PostgreSQL database for an App Cluster, from a Control Plane Cluster. No containers, all real.")
	} else {
		p.title("Klutch: a page of text for an App Cluster, from a Control Plane Cluster. No containers.\n" +
			"PostgreSQL is not installed, so that instances are pages of text in ConfigMaps; for databases: apt-get install postgresql")
	}
	options := stack.Options{Step: p.step, Log: d.out}
	if served {
		options.Data = data
	}
	s, err := stack.Start(ctx, options)
	if s != nil {
		defer func() { err = errors.Join(err, finish(p, s, err)) }()
	}
	if err != nil {
		return err
	}
	p.line("App Cluster", "%s", s.App.URL())
	p.line("Control Plane Cluster", "%s", s.Control.URL())
	if err := (&show{s: s, p: p, served: served}).all(ctx); err != nil || d.once {
		return err
	}
	return stay(ctx, p, s)
}

// stay keeps everything up until Ctrl-C.
func stay(ctx context.Context, p *printer, s *stack.Stack) error {
	bin := filepath.Join(s.Dir, "bin")
	p.title("Everything stays up. Try it, in another terminal:")
	p.text("export APP=%s\nexport CONTROL_PLANE=%s\nexport PATH=%s:$PATH\n", s.App.Kubeconfig(), s.Control.Kubeconfig(), bin)
	p.text("kubectl --kubeconfig $APP -n %s get postgresqlinstances,servicebindings,secrets", namespace)
	p.text("kubectl --kubeconfig $CONTROL_PLANE get postgresqlinstances,servicebindings -A")
	p.text("kubectl --kubeconfig $APP -n %s edit postgresqlinstance %s       # a bigger plan; a smaller one is refused", namespace, second)
	p.text("kubectl bind status --kubeconfig $APP")
	p.text("kubectl bind %s --kubeconfig $APP --backend-certificate-authority %s --service keyvalueinstances.anynines.com --skip-konnector", s.BackendURL, s.BackendCA)
	p.text("    # the login is %s, password %s; with --device the browser may be on another machine\n\nWhat the programs say: %s\nCtrl-C ends the demo and removes everything.", stack.Developer, stack.Password, s.Dir)
	<-ctx.Done()
	return nil
}

// finish stops everything, and keeps the logs of a show that went wrong.
func finish(p *printer, s *stack.Stack, shown error) error {
	p.title("Cleaning up.")
	err := s.Stop()
	if shown != nil {
		p.text("%s", s.KeepLogs())
	}
	return errors.Join(err, s.Remove())
}
