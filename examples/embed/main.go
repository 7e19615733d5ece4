// SPDX-License-Identifier: Apache-2.0

// Embed is a konnector inside a program of one's own, with metrics and a log.
//
//	go run ./examples/embed -kubeconfig app.kubeconfig
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
	flag.Parse()
	if err := run(*kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx = logr.NewContext(ctx, logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	return klutch.Konnector{Config: config, HealthAddress: "localhost:8080"}.Measured().Run(ctx)
}
