// SPDX-License-Identifier: Apache-2.0

// Tenants brings the objects of several App Clusters into one control plane. Each
// namespace of each of them gets a namespace of its own there, so that equal names
// do not meet.
//
//	go run ./examples/tenants control.kubeconfig widgets.v1.example.org ada=ada.kubeconfig bob=bob.kubeconfig
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	klutchsync "github.com/klutch-go/sdk/sync"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errors.New("usage: tenants CONTROL-KUBECONFIG RESOURCE.VERSION.GROUP NAME=KUBECONFIG [NAME=KUBECONFIG]")
	}
	gvr, _ := schema.ParseResourceArg(args[1])
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil || gvr == nil {
		return fmt.Errorf("resource %s of %s: %w", args[1], args[0], err)
	}
	set := klutchsync.NewSet(klutchsync.SetOptions{}) // a tenant that is away does not disturb the others
	for _, tenant := range args[2:] {
		name, path, _ := strings.Cut(tenant, "=")
		app, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return fmt.Errorf("tenant %s: %w", name, err)
		}
		wanted := workqueue.NewTyped[string]() // Add does not block
		context.AfterFunc(ctx, wanted.ShutDown)
		namespaces := klutchsync.NewNamespaces(wanted.Add)
		go provide(ctx, kubernetes.NewForConfigOrDie(config), name, wanted, namespaces)
		from, _ := klutchsync.NewCluster(app)
		to, _ := klutchsync.NewCluster(config) // New refuses a nil Cluster
		s, err := klutchsync.New(from, to, *gvr, klutchsync.Options{Binding: name, Mapper: namespaces, TargetScope: klutchsync.ScopeMapped})
		if err != nil {
			return err
		}
		set.Put(name, s) //nolint:contextcheck // a Sync has the context of its Set
	}
	return set.Run(ctx)
}

// provide makes the namespaces that a tenant wants.
func provide(ctx context.Context, kube kubernetes.Interface, tenant string, wanted workqueue.TypedInterface[string], table *klutchsync.Namespaces) {
	for source, end := wanted.Get(); !end; source, end = wanted.Get() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant + "-" + source}}
		if _, err := kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err == nil || apierrors.IsAlreadyExists(err) {
			table.Set(source, ns.Name)
		}
		wanted.Done(source)
	}
}
