// SPDX-License-Identifier: Apache-2.0

// Embed is a konnector inside a program of one's own, with metrics: go run ./examples/embed -kubeconfig app.kubeconfig
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/klutch"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the App Cluster")
	health := flag.String("health", "localhost:8080", "where it answers health probes, and serves metrics")
	flag.Parse()
	if err := run(*kubeconfig, *health); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, health string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	ctx := logr.NewContext(context.Background(), logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	return klutch.Konnector{Config: config, HealthAddress: health}.Measured().Run(ctx)
}
