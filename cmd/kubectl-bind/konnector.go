// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// konnectorDeployment is the name that every program of Klutch gives it.
const konnectorDeployment = "konnector"

// konnectorManifests are what to apply: nothing where a konnector is there already
// and no image is asked for.
func (i *installation) konnectorManifests(ctx context.Context) ([]*unstructured.Unstructured, error) {
	switch {
	case i.skipKonnector:
		return nil, nil
	case i.image != "":
		return deploy.Konnector(i.image), nil
	}
	client, err := kubernetes.NewForConfig(i.config)
	if err != nil {
		return nil, err
	}
	_, err = client.AppsV1().Deployments(v1alpha1.Namespace).Get(ctx, konnectorDeployment, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, usageError{"no konnector runs in this cluster: give it an image with --konnector-image, or use --skip-konnector where it runs elsewhere"}
	}
	if err != nil {
		return nil, fmt.Errorf("look for the konnector: %w", err)
	}
	return nil, nil
}

func konnectorCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{Use: "konnector", Short: "The program that keeps bound objects in step", Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(manifestsCommand(p))
	return cmd
}

func manifestsCommand(p *plugin) *cobra.Command {
	var image string
	cmd := &cobra.Command{
		Use:     "manifests --image IMAGE",
		Short:   "Print what runs the konnector, as YAML",
		Example: "  kubectl bind konnector manifests --image example.com/klutch/konnector:v1.0.0 | kubectl apply --server-side -f -",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&image, "image", "", "Image of the konnector")
	cmd.RunE = func(*cobra.Command, []string) error {
		if image == "" {
			return usageError{"--image is missing"}
		}
		printer := &printers.YAMLPrinter{}
		for _, u := range deploy.Konnector(image) {
			if err := printer.PrintObj(u, p.Out); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
