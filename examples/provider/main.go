// SPDX-License-Identifier: Apache-2.0

// Provider is a backend with a catalogue and an authorizer of its own:
// it offers every CRD with the label klutch.anynines.com/exported, for the members of the
// issuer's group that is named like the API. There are no templates, and no rights to
// "bind" in the cluster. It stands in for the shipped backend, with the same rights:
// apply klutch/v1alpha1/crds and deploy/backend before, without its Deployment.
//
//	KUBECONFIG=… CLIENT_SECRET=… go run ./examples/provider 127.0.0.1:8080 https://login.example.com klutch
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/klutch"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func main() {
	fmt.Fprintln(os.Stderr, run(context.Background(), os.Args[1:]))
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: provider ADDRESS ISSUER-URL CLIENT-ID")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	crds, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	return klutch.Backend{
		Config: config, ListenAddress: args[0],
		Login:   auth.Config{Issuer: args[1], ClientID: args[2], ClientSecret: os.Getenv("CLIENT_SECRET")},
		Options: export.Options{Name: "Labels and groups", ExternalURL: "http://" + args[0], Catalog: labels{crds}, Authorizer: groups{}},
	}.Run(ctx)
}

type labels struct{ crds clientset.Interface }

// Services implements [export.Catalog].
func (l labels) Services(ctx context.Context) (services []export.Service, _ error) {
	list, err := l.crds.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{LabelSelector: "klutch.anynines.com/exported=true"})
	for _, crd := range list.Items {
		names := crd.Spec.Names
		s := export.Service{Resource: schema.GroupResource{Group: crd.Spec.Group, Resource: names.Plural}, Kind: names.Kind, Title: names.Kind, Scope: v1alpha1.Scope(crd.Spec.Scope)}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				s.Version, s.Versions = v.Name, append(s.Versions, v.Name)
			}
		}
		services = append(services, s)
	}
	return services, err
}

type groups struct{}

// Authorize implements [export.Authorizer].
func (groups) Authorize(_ context.Context, id *auth.Identity, s export.Service) error {
	if slices.Contains(id.Groups, s.Resource.Resource) {
		return nil
	}
	return fmt.Errorf("%w: %s is for members of the group %s", export.ErrForbidden, s.Name(), s.Resource.Resource)
}
