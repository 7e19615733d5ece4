// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/klutch-go/sdk/bind"
)

func unbindCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unbind NAME",
		Short: "Give a bound API up",
		Long: `Give a bound API up: its binding, its kind, and what the konnector needed for it.
Objects of that kind have to be deleted before, because without the binding their
counterparts in the Control Plane Cluster would stay. Objects that are being deleted and
cannot go, since the platform is gone for good or has no such API any more, go with
--force: what stands for them on the platform may stay there.

With the last API of a platform its token is revoked, and the platform is told that
this cluster has left. If the platform cannot be reached or refuses, all else is
removed all the same, and the command ends with 1 and says how long the token is good.`,
		Example: `  kubectl bind unbind postgresqlinstances.anynines.com
  # the platform is gone, and with it what would delete the rest
  kubectl bind unbind postgresqlinstances.anynines.com --force`,
		ValidArgsFunction: p.completeBinding,
		Args:              oneBinding,
	}
	var dry string
	var timeout time.Duration
	var force bool
	addDryRun(cmd, &dry)
	cmd.Flags().BoolVar(&force, "force", false, "Do not wait for the platform: objects that are being deleted go from this cluster, and what stands for them there may stay")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "How long to wait for everything together; 0 is for ever")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkDryRun(dry); err != nil {
			return err
		}
		config, err := p.config()
		if err != nil {
			return err
		}
		ctx, cancel := withTimeout(cmd.Context(), timeout)
		defer cancel()
		return bind.Remove(ctx, config, args[0], bind.RemoveOptions{DryRun: dryRun(dry), Force: force, Progress: p.say})
	}
	return cmd
}
