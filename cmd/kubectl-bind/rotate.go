// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// rotation is the command that replaces credentials through new logins.
type rotation struct {
	*bindURL
	all     bool
	backend string
}

func rotateCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate [SECRET | --all]",
		Short: "Replace the credential of this cluster at a platform",
		Long: `Replace the credential of this cluster at a platform, which it has in a Secret in
namespace klutch-bind. All that were handed out before are refused within seconds.

This takes a login: who has stolen the credential could otherwise do the same. Leave
the services chosen that are, and go on.

Without an argument there has to be one such Secret; --all takes one after the other.`,
		Example: "  kubectl bind rotate\n  kubectl bind rotate kubeconfig-x2n4q --device",
		Args:    atMostOne,
	}
	r := &rotation{bindURL: &bindURL{installation: &installation{plugin: p, dryRun: "none"}}}
	flags := cmd.Flags()
	flags.BoolVar(&r.all, "all", false, "Replace the credentials of this cluster at all platforms")
	flags.StringVar(&r.backend, "backend", "", "URL of the backend, where the Secret does not say it")
	flags.DurationVar(&r.timeout, "timeout", 10*time.Minute, "How long to wait for everything together; 0 is for ever")
	r.loginFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) }
	return cmd
}

func (r *rotation) run(ctx context.Context, args []string) (err error) {
	if r.all && (len(args) > 0 || r.backend != "") {
		return usageError{"--all goes neither with a Secret nor with --backend"}
	}
	ctx, cancel := withTimeout(ctx, r.timeout)
	defer cancel()
	if r.config, err = r.plugin.config(); err != nil {
		return err
	}
	credentials, err := r.chosen(ctx, args)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range credentials {
		if err := r.replace(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("secret %s/%s: %w", v1alpha1.Namespace, c.Secret, err))
		}
	}
	return errors.Join(errs...)
}

// chosen are the credentials to replace.
func (r *rotation) chosen(ctx context.Context, args []string) ([]bind.Credential, error) {
	all, err := bind.Credentials(ctx, r.config)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Secret
	}
	for _, name := range args {
		all = slices.DeleteFunc(all, func(c bind.Credential) bool { return c.Secret != name })
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("no such credential in this cluster, there are %q: %w", names, bind.ErrNotFound)
	case len(all) > 1 && !r.all:
		return nil, usageError{fmt.Sprintf("name one of the Secrets %q, or all with --all", names)}
	}
	return all, nil
}

func (r *rotation) replace(ctx context.Context, c bind.Credential) error {
	url := cmp.Or(r.backend, c.Backend)
	if url == "" {
		return usageError{"it does not say at which backend it was bound: name that with --backend"}
	}
	client, err := r.client(url)
	if err != nil {
		return err
	}
	r.services = c.Services
	response, err := r.authenticate(ctx, client)
	if err != nil {
		return err
	}
	if err := c.Replace(ctx, r.config, response.Kubeconfig); err != nil {
		return err
	}
	r.sayf("Replaced the credential in secret %s/%s; those before it are refused within seconds", v1alpha1.Namespace, c.Secret)
	return nil
}
