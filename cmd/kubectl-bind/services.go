// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// A visit is a login at a platform that binds nothing.
type visit struct {
	login   *login
	output  *output
	timeout time.Duration
}

func newVisit(p *plugin, cmd *cobra.Command) *visit {
	v := &visit{login: &login{plugin: p}, output: newOutput(cmd)}
	cmd.Flags().DurationVar(&v.timeout, "timeout", 10*time.Minute, "How long to wait for everything together; 0 is for ever")
	v.login.flags(cmd)
	cmd.Args, cmd.ValidArgsFunction = oneURL, completeURL(p)
	return v
}

// oneURL lets the URL be left out.
func oneURL(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && !isURL(args[0]) {
		return usageError{fmt.Sprintf("%q is not the URL of a backend%s", args[0], didYouMean(&cobra.Command{}, args[0]))}
	}
	return atMostOne(cmd, args)
}

func servicesCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "services [URL]",
		Short: "List what a platform offers to you",
		Long: `List what a platform offers to you, and what of it is bound in this cluster.

A platform says that after a login only: without one its name is all that is public. The login
makes nothing there, and no credential is handed out. Where this cluster is bound to one
platform, the URL may be left out.`,
		Example: "  kubectl bind services https://klutch.example.com/export\n  kubectl bind services -o yaml",
	}
	v := newVisit(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return v.run(cmd.Context(), args, v.printServices)
	}
	return cmd
}

func whoamiCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "whoami [URL]",
		Short: "Show as whom a platform knows you",
		Long: `Show as whom a platform knows you, and the tenant that it has for this cluster of yours.

This takes a login each time, since none is kept: see kubectl bind services. There is nothing
to log out from.`,
		Example: "  kubectl bind whoami https://klutch.example.com/export\n  kubectl bind whoami -o json",
	}
	v := newVisit(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return v.run(cmd.Context(), args, v.printPerson)
	}
	return cmd
}

// run logs in and prints what the platform says. Without an App Cluster it does what it can.
func (v *visit) run(ctx context.Context, args []string, show func(*v1alpha1.OfferResponse, []string) error) error {
	if err := v.output.checkRows(); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, v.timeout)
	defer cancel()
	config, err := v.login.config()
	if err != nil && (len(args) == 0 || !errors.Is(err, errNoCluster)) {
		return err
	}
	url, err := platformOf(ctx, config, args)
	if err != nil {
		return err
	}
	client, err := v.login.client(url)
	if err != nil {
		return err
	}
	provider, err := client.Discover(ctx)
	if err != nil {
		return err
	}
	var cluster string
	var bound []string
	if config != nil {
		if cluster, err = bind.KnownClusterID(ctx, config); err == nil {
			bound, err = boundNames(ctx, config)
		}
		if err != nil {
			v.login.sayf("What is bound in this cluster is not known: %v", err)
		}
	}
	v.login.sayf("%s tells what it offers after a login.", provider.ProviderPrettyName)
	told, err := client.Offer(ctx, provider, v.login.options(provider, cluster))
	if err != nil {
		return err
	}
	return show(told, bound)
}

// platformOf is the URL of the command line, or that of the one platform of the cluster.
func platformOf(ctx context.Context, config *rest.Config, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	urls, err := bind.Platforms(ctx, config)
	if err != nil {
		return "", err
	}
	switch len(urls) {
	case 0:
		return "", usageError{"name the URL of a platform: this cluster knows none"}
	case 1:
		return urls[0], nil
	}
	return "", usageError{"name the URL of one of the platforms " + strings.Join(urls, ", ")}
}

// A serviceRow is a service as the command lists it.
type serviceRow struct {
	v1alpha1.OfferedService

	Bound bool `json:"bound"` // in this cluster
}

func (v *visit) printServices(told *v1alpha1.OfferResponse, bound []string) error {
	rows := []serviceRow{}
	for _, s := range told.Services {
		rows = append(rows, serviceRow{s, slices.Contains(bound, s.Name)})
	}
	for _, withheld := range told.Withheld {
		v.login.sayf("%s. You may bind it: ask the operators of the platform to put that right.", cell(withheld))
	}
	if len(rows) == 0 && v.output.isTable() {
		if len(told.Withheld) == 0 {
			v.login.say("Nothing is on offer for you. Ask the operators of the platform for the right to bind a service.")
		}
		return nil
	}
	return printRows(v.login.plugin, v.output, []string{"Service", "Title", "Versions", "Bound", "Claims", "Description+", "Documentation+"}, rows, func(r serviceRow) []any {
		var claims []string
		for _, c := range r.PermissionClaims {
			claims = append(claims, c.String())
		}
		list := func(words []string) string { return cell(strings.Join(words, ",")) }
		return []any{cell(r.Name), cell(r.Title), list(r.Versions), r.Bound, list(slices.Compact(claims)), cell(r.Description), cell(r.DocumentationURL)}
	})
}

// A personRow is a person as the command shows one.
type personRow struct {
	v1alpha1.Person

	Tenant string `json:"tenant,omitempty"`
}

func (v *visit) printPerson(told *v1alpha1.OfferResponse, _ []string) error {
	person := personRow{told.Person, told.Tenant}
	if !v.output.isTable() {
		return printValue(v.login.plugin, v.output, person)
	}
	return printRows(v.login.plugin, v.output, []string{"Subject", "Name", "Email", "Issuer", "Tenant", "Groups+"}, []personRow{person}, func(r personRow) []any {
		return []any{cell(r.Subject), cell(r.Name), cell(r.Email), cell(r.Issuer), cell(r.Tenant), cell(strings.Join(r.Groups, ","))}
	})
}
