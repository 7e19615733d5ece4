// SPDX-License-Identifier: Apache-2.0

// Servicebroker carries out the claims of examples/catalog with a service broker.
//
//	BROKER_PASSWORD=… servicebroker -kubeconfig control-plane.kubeconfig -broker https://broker.example -username klutch
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/examples/servicebroker"
	"github.com/klutch-go/sdk/examples/servicebroker/osb"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig for the Control Plane Cluster")
	broker := flag.String("broker", "", "URL of the broker, without /v2")
	username := flag.String("username", "", "name of this platform at the broker; its password is in the environment, BROKER_PASSWORD")
	cluster := flag.String("cluster", "klutch", "name of this control plane, told to the broker")
	actions := flag.String("actions", "", "what each service of the broker has, though its catalogue does not say so: backups,restores")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	err := run(logr.NewContext(ctx, log), *kubeconfig, &servicebroker.Controller{
		Broker:  osb.Broker{URL: *broker, Username: *username, Password: os.Getenv("BROKER_PASSWORD")},
		Cluster: *cluster,
		Actions: strings.FieldsFunc(*actions, func(r rune) bool { return r == ',' }),
	})
	cancel()
	if err != nil {
		log.Error(err, "servicebroker ends")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string, c *servicebroker.Controller) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	if c.Types, err = servicebroker.Served(api); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("carries out", "instances", c.Types)
	if c.Client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	return c.Run(ctx)
}
