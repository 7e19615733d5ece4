// SPDX-License-Identifier: Apache-2.0

// Adopt puts objects that exist in a control plane already under the control of an
// App Cluster: those of the same name there take them over, with all that the App
// Cluster says, and what it does not say stays. Adopted objects are deleted with
// their sources; -keep leaves them.
//
//	go run ./examples/adopt -source app.kubeconfig -target control.kubeconfig -resource widgets.v1.example.org
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	klutchsync "github.com/klutch-go/sdk/sync"
)

func main() {
	source := flag.String("source", "", "kubeconfig of the cluster that takes over")
	target := flag.String("target", "", "kubeconfig of the cluster whose objects are taken over")
	resource := flag.String("resource", "", "resource.version.group")
	keep := flag.Bool("keep", false, "leave objects whose source is deleted")
	flag.Parse()
	opts := klutchsync.Options{Binding: "adopt", Conflict: klutchsync.ConflictAdopt}
	if *keep {
		opts.Deletion = klutchsync.DeletionOrphan
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := adopt(ctx, *source, *target, *resource, opts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "adopt:", err)
		os.Exit(1)
	}
}

func adopt(ctx context.Context, source, target, resource string, opts klutchsync.Options) error {
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
	opts.Hooks.Reported = func(_ context.Context, r klutchsync.Report) {
		fmt.Println(r.Source, r.Reason, r.Message)
	}
	s, err := klutchsync.New(from, to, *gvr, opts)
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
