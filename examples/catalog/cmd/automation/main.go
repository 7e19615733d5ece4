// SPDX-License-Identifier: Apache-2.0

// Automation carries out the claims of the catalog in the Control Plane Cluster.
//
//	automation -kubeconfig control-plane.kubeconfig -data /var/lib/data-services
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
	"github.com/klutch-go/sdk/examples/catalog/engine"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig for the Control Plane Cluster")
	data := flag.String("data", "", "folder for the data of PostgreSQL and Valkey or Redis; without it, an instance is a page of text in a ConfigMap")
	stop := flag.Bool("stop", false, "end the servers whose data is in -data, and exit")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	err := run(logr.NewContext(ctx, log), *kubeconfig, *data, *stop)
	cancel()
	if err != nil {
		log.Error(err, "automation ends")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, data string, stop bool) error {
	if stop {
		return engine.Stop(ctx, data)
	}
	var engines map[string]engine.Engine
	if data != "" {
		var err error
		if engines, err = engine.Find(data); err != nil {
			return err
		}
		for _, service := range automation.Offered() {
			if engines[service] == nil {
				logr.FromContextOrDiscard(ctx).Info("no server found: its instances are pages of text in ConfigMaps", "service", service)
			}
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	return automation.Run(ctx, config, engines)
}
