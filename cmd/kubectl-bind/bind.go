// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// bindURL is the command that binds through a login.
type bindURL struct {
	*installation
	login *login
}

func bindCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-bind URL [--service RESOURCE.GROUP]...",
		Short: "Use APIs of a Control Plane Cluster in this cluster",
		Long: `Use APIs of a Control Plane Cluster in this cluster.

You log in at the backend of a platform team with your browser, choose services,
and answer what they ask of your cluster. Then their kinds are here: whatever is
applied is carried out over there, and status and credentials come back.

Where no browser runs, over SSH say, --device prints a code to type into one on any
other device.

A dry run does not log in, since a login already makes a place for you in the
Control Plane Cluster. It prints the requests for the services that you name.

To complete command lines, kubectl looks for kubectl_complete-bind on the PATH: link
this program to that name.

Exit codes: 0 done, 1 error, 2 usage, 3 not ready or timed out, 4 authentication or
permission, 5 a permission claim needs an answer, 6 conflict, 130 interrupted.`,
		Example: `  # Choose services in the browser
  kubectl bind https://klutch.example.com/export

  # Name the services, and answer their claims beforehand
  kubectl bind https://klutch.example.com/export --service postgresqlinstances.anynines.com \
    --service servicebindings.anynines.com --accept-claim servicebindings.anynines.com/secrets

  # Log in with the browser of another device
  kubectl bind https://klutch.example.com/export --device

  # List the bindings
  kubectl bind status`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !isURL(args[0]) {
				return usageError{fmt.Sprintf("%q is neither a command nor the URL of a backend%s", args[0], didYouMean(cmd, args[0]))}
			}
			return atMostOne(cmd, args)
		},

		ValidArgsFunction: completeURL(p),
	}
	b := &bindURL{installation: addKonnector(cmd, newInstallation(p, cmd)), login: &login{plugin: p}}
	flags := cmd.Flags()
	flags.StringArrayVar(&b.login.services, "service", nil, "Service to bind, as RESOURCE.GROUP; may be repeated. Without it, those chosen in the browser.")
	b.login.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return b.run(cmd.Context(), args[0])
	}
	return cmd
}

// didYouMean names what a word may be short for, or the commands that are spelled much like it.
func didYouMean(cmd *cobra.Command, word string) string {
	switch {
	case word == "bind": // of which the nearest command is the opposite
		return "; did you mean kubectl bind URL?"
	case isHost(word) && strings.ContainsAny(word, ":/") || word == "localhost":
		return "; did you mean https://" + word + "?"
	case isHost(word): // services have such names, too
		return "; did you mean https://" + word + ", or kubectl bind URL --service " + word + "?"
	}
	return spelledLike(cmd, word, "")
}

// spelledLike names the subcommands that are spelled much like a word, each after a prefix.
func spelledLike(cmd *cobra.Command, word, prefix string) string {
	cmd.SuggestionsMinimumDistance = 2
	like := cmd.SuggestionsFor(word)
	if len(like) == 0 {
		return ""
	}
	return ". Did you mean: " + prefix + strings.Join(like, ", "+prefix) + "?"
}

// wrongFlag is a usageError, with the flags that are spelled much like one that does not exist.
func wrongFlag(cmd *cobra.Command, err error) error {
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return usageError{err.Error()}
	}
	flags := &cobra.Command{} // of which cobra compares the names
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return usageError{err.Error() + spelledLike(flags, unknown.GetSpecifiedName(), "--")}
}

func (b *bindURL) run(ctx context.Context, url string) error {
	if err := b.check(); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, b.timeout)
	defer cancel()
	client, err := b.login.client(url)
	if err != nil {
		return err
	}
	if b.dryRun != "none" {
		return b.dry(ctx, client)
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := errors.Join(b.claims.inCluster(ctx, b.config), bind.Check(ctx, b.config, b.login.services)); err != nil {
		return err
	}
	b.backend = url
	requests, kubeconfig, err := b.login.requests(ctx, b.config, client, url)
	if err != nil {
		return err
	}
	return b.install(ctx, kubeconfig, requests)
}

// isHost tells whether a word looks like a URL without its scheme.
func isHost(word string) bool { return host.MatchString(word) }

var host = regexp.MustCompile(`^(localhost|[\w-]+(\.[\w-]+)+)(:\d+)?(/\S*)?$`)

func isURL(arg string) bool {
	return strings.HasPrefix(arg, "https://") || strings.HasPrefix(arg, "http://")
}

func (b *bindURL) check() error {
	for _, s := range b.login.services {
		if err := bind.CheckService(s); err != nil {
			return usageError{fmt.Sprintf("--service %s: %v; services are named RESOURCE.GROUP, such as postgresqlinstances.anynines.com", s, err)}
		}
	}
	if b.dryRun == "server" {
		return usageError{"--dry-run=server has API servers check, and only a login makes a place to ask for: use --dry-run=client, or kubectl bind apiservice --dry-run=server with a credential"}
	}
	if err := b.claims.ofServices(b.login.services); err != nil {
		return err
	}
	return b.installation.check()
}

// dry checks that the backend is one, and prints what would be asked of it.
func (b *bindURL) dry(ctx context.Context, client *bind.Client) error {
	if len(b.login.services) == 0 {
		return usageError{"a dry run does not log in, so name the services with --service"}
	}
	if _, err := client.Discover(ctx); err != nil {
		return err
	}
	var objects []runtime.Object
	for _, s := range b.login.services {
		r := requestFor(s)
		objects = append(objects, &r)
	}
	return b.printObjects(b.output.orYAML(), objects)
}

// requestFor is what asks for one service.
func requestFor(service string) (r v1alpha1.APIServiceExportRequest) {
	resource, group, _ := strings.Cut(service, ".")
	r.APIVersion, r.Kind, r.Name = v1alpha1.GroupVersion.String(), "APIServiceExportRequest", service
	r.Spec.Resources = []v1alpha1.APIServiceExportRequestResource{{GroupResource: v1alpha1.GroupResource{Group: group, Resource: resource}}}
	return r
}
