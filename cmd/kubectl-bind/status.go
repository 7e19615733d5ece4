// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func statusCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status [NAME]",
		Short:   "Show the APIs that are bound, and whether they work",
		Long:    "Show the APIs that are bound, and whether they work. The exit code is 3 if one of them is not ready.",
		Example: "  kubectl bind status\n  kubectl bind status postgresqlinstances.anynines.com -o yaml\n  kubectl bind status --watch",
		Args:    atMostOne,

		ValidArgsFunction: p.completeBinding,
	}
	out := newOutput(cmd)
	watch := cmd.Flags().BoolP("watch", "w", false, "Go on and show what changes, until interrupted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if *watch {
			return watchStatus(cmd.Context(), p, out, args)
		}
		return showStatus(cmd.Context(), p, out, args)
	}
	return cmd
}

func watchStatus(ctx context.Context, p *plugin, out *output, names []string) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = bind.Watch(ctx, config, func(b v1alpha1.APIServiceBinding) {
		if len(names) > 0 && !slices.Contains(names, b.Name) {
			return
		}
		if err := p.printBindings(out, []v1alpha1.APIServiceBinding{b}); err != nil {
			stop(err)
		}
		out.noHeaders = true
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func showStatus(ctx context.Context, p *plugin, out *output, names []string) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	all, err := p.bindings(ctx, config, names...)
	if err != nil {
		return err
	}
	if len(all) == 0 && out.isTable() {
		p.say("Nothing is bound in this cluster yet. Bind an API with: kubectl bind URL")
		return nil
	}
	if err := p.printBindings(out, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(b v1alpha1.APIServiceBinding) bool {
		return !bind.IsReady(b)
	}) {
		return errQuiet
	}
	return nil
}

// bindings are all, or the one that is named.
func (p *plugin) bindings(ctx context.Context, config *rest.Config, names ...string) ([]v1alpha1.APIServiceBinding, error) {
	all, err := bind.List(ctx, config)
	for _, name := range names {
		all = slices.DeleteFunc(all, func(b v1alpha1.APIServiceBinding) bool { return b.Name != name })
		if err == nil && len(all) == 0 {
			err = fmt.Errorf("%s: %w", name, bind.ErrNotFound)
		}
	}
	return all, err
}
