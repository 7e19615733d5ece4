// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/deploy"
)

// konnectorManifests are what to apply: nothing where a konnector is there already
// and no image is asked for.
func (i *installation) konnectorManifests(ctx context.Context) ([]*unstructured.Unstructured, error) {
	switch {
	case i.skipKonnector:
		return nil, nil
	case i.image != "":
		return deploy.Konnector(i.image), nil
	}
	_, err := bind.KonnectorImage(ctx, i.config)
	if errors.Is(err, bind.ErrNoKonnector) {
		return nil, usageError{"no konnector runs in this cluster: give it an image with --konnector-image, or use --skip-konnector where it runs elsewhere"}
	}
	return nil, err
}

func konnectorCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{Use: "konnector", Short: "Install, upgrade or remove the program that keeps bound objects in step"}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError{fmt.Sprintf("unknown command %q%s", args[0], didYouMean(cmd, args[0]))}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(konnectorInstallCommand(p, false), konnectorInstallCommand(p, true), konnectorUninstallCommand(p), manifestsCommand(p))
	return cmd
}

// A konnectorChange is what the commands have in common that change the konnector.
type konnectorChange struct {
	output        *output
	image, dryRun string
	wait, force   bool
	timeout       time.Duration
}

func newKonnectorChange(cmd *cobra.Command) *konnectorChange {
	c := &konnectorChange{output: newOutput(cmd)}
	addDryRun(cmd, &c.dryRun)
	cmd.Flags().DurationVar(&c.timeout, "timeout", 5*time.Minute, "How long to wait for everything together; 0 is for ever")
	return c
}

func (c *konnectorChange) options(p *plugin) bind.KonnectorOptions {
	return bind.KonnectorOptions{Manifests: deploy.Konnector(c.image), Force: c.force, DryRun: dryRun(c.dryRun), Progress: p.say}
}

func konnectorInstallCommand(p *plugin, upgrade bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: "install --image IMAGE", Short: "Install the konnector and wait until it runs",
		Long: `Install the konnector and wait until it runs. What is applied is what konnector manifests
prints, by server-side apply. Where the konnector is installed with another image, use upgrade.`,
		Example: "  kubectl bind konnector install --image example.com/klutch/konnector:v1.0.0",
		Args:    noArgs,
	}
	if upgrade {
		cmd.Use, cmd.Short = "upgrade --image IMAGE", "Upgrade the konnector and wait until the new one runs"
		cmd.Long = `Upgrade the konnector, with its rights and policies, and wait until the new one runs. Bound
APIs go on meanwhile: one replica after the other is replaced.`
		cmd.Example = "  kubectl bind konnector upgrade --image example.com/klutch/konnector:v1.1.0"
	}
	c := newKonnectorChange(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.image, "image", "", "Image of the konnector")
	flags.BoolVar(&c.force, "force-conflicts", false, "Take over fields that another program has set, a GitOps tool for example")
	flags.BoolVar(&c.wait, "wait", true, "Wait until all replicas run the image")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := withTimeout(cmd.Context(), c.timeout)
		defer cancel()
		return c.install(ctx, p, upgrade)
	}
	return cmd
}

func (c *konnectorChange) install(ctx context.Context, p *plugin, upgrade bool) error {
	if c.image == "" {
		return usageError{"--image is missing"}
	}
	if err := errors.Join(checkDryRun(c.dryRun), c.output.check()); err != nil {
		return err
	}
	config, err := p.config()
	if err != nil {
		return err
	}
	there, err := bind.KonnectorImage(ctx, config)
	switch {
	case errors.Is(err, bind.ErrNoKonnector) && upgrade, err != nil && !errors.Is(err, bind.ErrNoKonnector):
		return err
	case err == nil && !upgrade && there != c.image:
		return fmt.Errorf("the konnector is installed with image %s: %w", there, errOtherImage)
	}
	if err := bind.InstallKonnector(ctx, config, c.options(p)); err != nil {
		return err
	}
	var notReady error
	if c.wait && c.dryRun == "none" {
		if notReady = bind.WaitKonnector(ctx, config, p.say); notReady == nil {
			p.sayf("All replicas of the konnector run %s", c.image)
		}
	}
	return errors.Join(notReady, c.print(p, deploy.Konnector(c.image)))
}

// print shows objects to programs; people have been told.
func (c *konnectorChange) print(p *plugin, all []*unstructured.Unstructured) error {
	if c.output.isTable() {
		return nil
	}
	objects := make([]runtime.Object, len(all))
	for n, u := range all {
		objects[n] = u
	}
	return p.printObjects(c.output, objects)
}

// errOtherImage says that install would be an upgrade.
var errOtherImage = errors.New("this would be an upgrade")

func konnectorUninstallCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Remove the konnector, once nothing is bound",
		Long: `Remove the konnector with its rights and policies, and wait until it is gone. While an API
is bound this is refused: without a konnector nothing carries out deletions.

Namespace klutch-bind and the CRD of bindings stay. Platforms know this cluster by the UID of
that namespace: who deletes it is another cluster to them.`,
		Example: "  kubectl bind konnector uninstall",
		Args:    noArgs,
	}
	c := newKonnectorChange(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(checkDryRun(c.dryRun), c.output.check()); err != nil {
			return err
		}
		config, err := p.config()
		if err != nil {
			return err
		}
		ctx, cancel := withTimeout(cmd.Context(), c.timeout)
		defer cancel()
		deleted, err := bind.UninstallKonnector(ctx, config, c.options(p))
		if err == nil && len(deleted) == 0 {
			p.say("No konnector is installed in this cluster")
		}
		return errors.Join(err, c.print(p, deleted))
	}
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
