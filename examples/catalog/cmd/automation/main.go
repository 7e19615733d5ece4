// SPDX-License-Identifier: Apache-2.0

// Automation carries out the claims of the catalog in the Control Plane Cluster.
//
//	automation -kubeconfig control-plane.kubeconfig -data /var/lib/data-services
//
// Without -kubeconfig it uses the service account of the pod that it runs in.
package main

import (
	"context"
	"errors"
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
	data := flag.String("data", "", "folder for the data of the servers that engine.Find finds; without it, an instance is a page of text in a ConfigMap")
	stop := flag.Bool("stop", false, "end the servers whose data is in -data, and exit")
	stopAfter := flag.Bool("stop-after", false, "end the servers when this program ends")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	var err error
	if !*stop {
		err = run(logr.NewContext(ctx, log), *kubeconfig, *data)
	}
	if *stop || *stopAfter && *data != "" {
		err = errors.Join(err, engine.Stop(context.WithoutCancel(ctx), *data))
	}
	cancel()
	if err != nil {
		log.Error(err, "automation ends")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, data string) error {
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
