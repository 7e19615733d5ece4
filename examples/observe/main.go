// SPDX-License-Identifier: Apache-2.0

// Observe mirrors a resource and prints a line of JSON for each write that it
// makes, and for whatever keeps an object from being in step or does so no more:
// what metrics, Events and dashboards are made of.
//
//	go run ./examples/observe -source app.kubeconfig -target control.kubeconfig -resource widgets.v1.example.org
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	klutchsync "github.com/klutch-go/sdk/sync"
)

func main() {
	source := flag.String("source", "", "kubeconfig of the cluster whose users decide what should exist")
	target := flag.String("target", "", "kubeconfig of the cluster where it exists")
	resource := flag.String("resource", "", "resource.version.group to keep in step")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := observe(ctx, os.Stdout, *source, *target, *resource)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observe:", err)
		os.Exit(1)
	}
}

func observe(ctx context.Context, out io.Writer, source, target, resource string) error {
	gvr, _ := schema.ParseResourceArg(resource)
	if gvr == nil {
		return fmt.Errorf("resource %q is not of the form widgets.v1.example.org", resource)
	}
	var clusters [2]*klutchsync.Cluster
	for i, kubeconfig := range []string{source, target} {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
		}
		if clusters[i], err = klutchsync.NewCluster(config); err != nil {
			return err
		}
	}
	log := slog.New(slog.NewJSONHandler(out, nil)) // one that any number of goroutines may use
	s, err := klutchsync.New(clusters[0], clusters[1], *gvr, klutchsync.Options{Binding: "observe", Hooks: hooks(log)})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func hooks(log *slog.Logger) klutchsync.Hooks {
	return klutchsync.Hooks{
		Wrote: func(ctx context.Context, w klutchsync.Write) {
			log.InfoContext(ctx, "wrote", "side", w.Side, "step", w.Step, "object", w.Object.String(), "took", w.Took, "error", w.Err)
		},
		Reported: func(ctx context.Context, r klutchsync.Report) {
			log.InfoContext(ctx, "reported", "source", r.Source.String(), "reason", r.Reason, "message", r.Message)
		},
	}
}
