// SPDX-License-Identifier: Apache-2.0

// Automation carries out the claims of the catalog in the Control Plane Cluster.
//
//	automation -kubeconfig control-plane.kubeconfig
//
// Without -kubeconfig it uses the service account of the pod that it runs in.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/examples/catalog/automation"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig for the Control Plane Cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	err := run(logr.NewContext(ctx, log), *kubeconfig)
	stop()
	if err != nil {
		log.Error(err, "automation ends")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	return automation.Run(ctx, config)
}
