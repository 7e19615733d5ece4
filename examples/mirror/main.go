// SPDX-License-Identifier: Apache-2.0

// Mirror keeps the objects of one resource in step between two clusters, under
// the same names: specs from source to target, statuses back.
//
//	go run ./examples/mirror -source app.kubeconfig -target control.kubeconfig -resource widgets.v1.example.org
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/go-logr/logr"
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
	ctx = logr.NewContext(ctx, logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	err := mirror(ctx, *source, *target, *resource)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mirror:", err)
		os.Exit(1)
	}
}

func mirror(ctx context.Context, source, target, resource string) error {
	gvr, _ := schema.ParseResourceArg(resource)
	if gvr == nil {
		return fmt.Errorf("resource %q is not of the form widgets.v1.example.org", resource)
	}
	from, err := connect(source)
	if err != nil {
		return err
	}
	to, err := connect(target)
	if err != nil {
		return err
	}
	s, err := klutchsync.New(from, to, *gvr, klutchsync.Options{Binding: "mirror"})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func connect(kubeconfig string) (*klutchsync.Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return klutchsync.NewCluster(config)
}
