// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// rotation is the command that replaces credentials through new logins.
type rotation struct {
	*plugin
	login   *login
	config  *rest.Config
	all     bool
	backend string
	timeout time.Duration
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

		ValidArgsFunction: onlyFirst(complete(p, credentialSecrets)),
	}
	r := &rotation{plugin: p, login: &login{plugin: p}}
	flags := cmd.Flags()
	flags.BoolVar(&r.all, "all", false, "Replace the credentials of this cluster at all platforms")
	flags.StringVar(&r.backend, "backend", "", "URL of the backend, where the Secret does not say it")
	flags.DurationVar(&r.timeout, "timeout", 10*time.Minute, "How long to wait for everything together; 0 is for ever")
	r.login.flags(cmd)
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
	case len(names) == 0:
		return nil, errors.New("there is no credential to replace: no binding has its kubeconfig Secret. To get one, run kubectl bind repair URL")
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
	client, err := r.login.client(url)
	if err != nil {
		return err
	}
	r.login.services = c.Services
	response, err := r.login.authenticate(ctx, r.config, client)
	if err != nil {
		return err
	}
	if err := c.Replace(ctx, r.config, response.Kubeconfig); err != nil {
		return err
	}
	r.sayf("Replaced the credential in secret %s/%s; those before it are refused within seconds", v1alpha1.Namespace, c.Secret)
	r.changed = append(r.changed, fmt.Sprintf("replaced the credential in secret %s/%s", v1alpha1.Namespace, c.Secret))
	return nil
}

// repair is the command that binds again all that is bound from a platform.
type repair struct {
	*installation
	login *login
}

func repairCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair [URL]",
		Short: "Bind again all that is bound from a platform",
		Long: `Bind again all that is bound in this cluster from a platform, in one login: where a Secret or
a role was deleted, the token was revoked, or the platform has removed the tenant. The page has
ticked what is bound; what another person has bound stays as it is. Answers to permission claims hold; claims that are new are asked about.
Objects stay as they are. Where this cluster is bound to one platform, the URL may be left out.`,
		Example: "  kubectl bind repair\n  kubectl bind repair https://klutch.example.com/export --device",
		Args:    oneURL,

		ValidArgsFunction: completeURL(p),
	}
	r := &repair{installation: newInstallation(p, cmd)}
	r.skipKonnector, r.login = true, &login{plugin: p}
	r.login.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) }
	return cmd
}

// mostAsked is how many services a backend takes in one question.
const mostAsked = 20

func (r *repair) run(ctx context.Context, args []string) error {
	if r.dryRun != "none" {
		return usageError{"a repair takes a login, which no dry run does; kubectl bind doctor tells what is wrong"}
	}
	if err := r.check(); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, r.timeout)
	defer cancel()
	err := r.prepare(ctx)
	if err != nil {
		return err
	}
	if r.backend, err = platformOf(ctx, r.config, args); err != nil {
		return err
	}
	client, err := r.login.client(r.backend)
	if err != nil {
		return err
	}
	provider, err := client.Discover(ctx)
	if err != nil {
		return err
	}
	bound, err := bind.BoundAt(ctx, r.config, r.backend, provider.ProviderPrettyName)
	if err != nil {
		return err
	}
	if len(bound) == 0 {
		return fmt.Errorf("from %s: %w", r.backend, bind.ErrNotFound)
	}
	if len(bound) <= mostAsked { // of more the page knows itself which were chosen before
		r.login.preselect = bound
	}
	r.sayf("Binding again: %s", strings.Join(bound, ", "))
	requests, kubeconfig, err := r.login.requests(ctx, r.config, client, r.backend)
	if err != nil {
		return err
	}
	others, err := bind.Elsewhere(ctx, r.config, bound, kubeconfig)
	if err != nil {
		return err
	}
	for _, name := range others {
		r.sayf("Left out %s, which another person has bound: it takes a repair and a login of theirs", name)
	}
	requests = only(r.plugin, requests, bound, "which is not bound from there: that takes kubectl bind "+r.backend)
	theirs := func(name string) bool { return slices.Contains(others, name) }
	requests = slices.DeleteFunc(requests, func(q v1alpha1.APIServiceExportRequest) bool { return slices.ContainsFunc(serviceNames(q), theirs) })
	if len(requests) > 0 {
		if err := r.install(ctx, kubeconfig, requests); err != nil {
			return err
		}
	}
	return missing(slices.DeleteFunc(bound, theirs), requests)
}

// missing tells which services were not granted.
func missing(wanted []string, granted []v1alpha1.APIServiceExportRequest) error {
	left := slices.Clone(wanted)
	for _, request := range granted {
		left = slices.DeleteFunc(left, func(name string) bool { return slices.Contains(serviceNames(request), name) })
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("not bound again, since they were not chosen or are not on offer any more: %s; kubectl bind services URL lists what is on offer, and kubectl bind unbind NAME gives one up", strings.Join(left, ", "))
}
