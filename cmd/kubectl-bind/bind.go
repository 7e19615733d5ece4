// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// bindURL is the command that binds through a login.
type bindURL struct {
	*installation
	services  []string
	ca        string
	noBrowser bool
	device    bool
	preselect []string // on the page, beside services
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
	b := &bindURL{installation: addKonnector(cmd, newInstallation(p, cmd))}
	flags := cmd.Flags()
	flags.StringArrayVar(&b.services, "service", nil, "Service to bind, as RESOURCE.GROUP; may be repeated. Without it, those chosen in the browser.")
	b.loginFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return b.run(cmd.Context(), args[0])
	}
	return cmd
}

// didYouMean names the commands that are spelled much like word.
func didYouMean(cmd *cobra.Command, word string) string {
	cmd.SuggestionsMinimumDistance = 2
	like := cmd.SuggestionsFor(word)
	if len(like) == 0 {
		return ""
	}
	return ". Did you mean: " + strings.Join(like, ", ") + "?"
}

// loginFlags are the flags of a login.
func (b *bindURL) loginFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&b.ca, "backend-certificate-authority", "", "File with the certificate authority of the backend, in place of the system's")
	flags.BoolVar(&b.noBrowser, "no-browser", false, "Only print the URL of the login, for a browser on this machine")
	flags.BoolVar(&b.device, "device", false, "Log in with a browser on any other device, by a code to type there")
}

func (b *bindURL) run(ctx context.Context, url string) error {
	if err := b.check(); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, b.timeout)
	defer cancel()
	client, err := b.client(url)
	if err != nil {
		return err
	}
	if b.dryRun != "none" {
		return b.dry(ctx, client)
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := errors.Join(b.claims.inCluster(b.config), bind.Check(ctx, b.config, b.services)); err != nil {
		return err
	}
	b.backend = url
	requests, kubeconfig, err := b.login(ctx, client)
	if err != nil {
		return err
	}
	return b.install(ctx, kubeconfig, requests)
}

func isURL(arg string) bool {
	return strings.HasPrefix(arg, "https://") || strings.HasPrefix(arg, "http://")
}

func (b *bindURL) check() error {
	for _, s := range b.services {
		if err := bind.CheckService(s); err != nil {
			return usageError{fmt.Sprintf("--service %s: %v; services are named RESOURCE.GROUP, such as postgresqlinstances.anynines.com", s, err)}
		}
	}
	if b.dryRun == "server" {
		return usageError{"--dry-run=server has API servers check, and only a login makes a place to ask for: use --dry-run=client, or kubectl bind apiservice --dry-run=server with a credential"}
	}
	if err := b.claims.ofServices(b.services); err != nil {
		return err
	}
	return b.installation.check()
}

func (b *bindURL) client(url string) (*bind.Client, error) {
	opts := bind.ClientOptions{}
	if b.ca != "" {
		data, err := os.ReadFile(b.ca)
		if err != nil {
			return nil, fmt.Errorf("--backend-certificate-authority: %w", err)
		}
		opts.CAData = data
	}
	client, err := bind.NewClient(url, opts)
	if err != nil {
		err = usageError{err.Error()}
	}
	return client, err
}

// dry checks that the backend is one, and prints what would be asked of it.
func (b *bindURL) dry(ctx context.Context, client *bind.Client) error {
	if len(b.services) == 0 {
		return usageError{"a dry run does not log in, so name the services with --service"}
	}
	if _, err := client.Discover(ctx); err != nil {
		return err
	}
	var objects []runtime.Object
	for _, s := range b.services {
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

// authenticate lets the person log in.
func (b *bindURL) authenticate(ctx context.Context, client *bind.Client) (*v1alpha1.BindingResponse, error) {
	provider, err := client.Discover(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := b.clusterID(ctx)
	if err != nil {
		return nil, err
	}
	response, err := client.Login(ctx, provider, b.options(provider, cluster))
	if err != nil {
		return nil, err
	}
	b.sayf("Logged in at %s as %s", provider.ProviderPrettyName, response.Authentication.OAuth2CodeGrant.ID)
	return response, nil
}

// clusterID says so when it makes the namespace.
func (b *bindURL) clusterID(ctx context.Context) (string, error) {
	id, err := bind.KnownClusterID(ctx, b.config)
	if err != nil || id != "" {
		return id, err
	}
	if id, err = bind.ClusterID(ctx, b.config); err != nil {
		return "", err
	}
	b.sayf("Created namespace %s, by whose UID the platform knows this cluster", v1alpha1.Namespace)
	b.changed = append(b.changed, "created namespace "+v1alpha1.Namespace)
	return id, nil
}

// login returns the requests that were granted, and the kubeconfig. Bindings that use the
// same tenant go on with the new credential, since the login has ended the one before.
func (b *bindURL) login(ctx context.Context, client *bind.Client) ([]v1alpha1.APIServiceExportRequest, []byte, error) {
	response, err := b.authenticate(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	renewed, err := bind.Renew(ctx, b.config, b.backend, response.Kubeconfig)
	for _, secret := range renewed {
		b.sayf("Replaced the credential in secret %s/%s", v1alpha1.Namespace, secret)
		b.changed = append(b.changed, fmt.Sprintf("replaced the credential in secret %s/%s", v1alpha1.Namespace, secret))
	}
	if err != nil {
		return nil, nil, err
	}
	var all []v1alpha1.APIServiceExportRequest
	for _, raw := range response.Requests {
		requests, err := bind.ReadRequests(raw.Raw)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", bind.ErrResponse, err)
		}
		all = append(all, requests...)
	}
	chosen, err := b.choose(all)
	return chosen, response.Kubeconfig, err
}

func (b *bindURL) options(provider *v1alpha1.BindingProvider, cluster string) bind.LoginOptions {
	opts := bind.LoginOptions{ClusterID: cluster, Services: slices.Concat(b.services, b.preselect), Device: b.device}
	if b.device {
		opts.Prompt = promptDevice(b.plugin, provider.ProviderPrettyName)
		return opts
	}
	opts.Prompt = prompt(b.plugin, provider.ProviderPrettyName)
	if !b.noBrowser {
		opts.Open = openOrHint(b.plugin, provider)
	}
	return opts
}

// openOrHint goes on waiting where no browser can be opened: the person may follow
// the URL, or begin again on another device where the backend knows that.
func openOrHint(p *plugin, provider *v1alpha1.BindingProvider) func(string) error {
	knowsDevices := slices.ContainsFunc(provider.AuthenticationMethods, func(m v1alpha1.AuthenticationMethod) bool {
		return m.OAuth2CodeGrant != nil && m.OAuth2CodeGrant.DeviceURL != ""
	})
	return func(url string) error {
		err := openBrowser(p, url)
		if err != nil && knowsDevices {
			p.say("No browser can be opened here. To use one on another device, run the command again with --device.")
		}
		return err
	}
}

func promptDevice(p *plugin, name string) func(url, code string) {
	return func(url, code string) {
		p.sayf("To log in at %s, visit in a browser on any device:", name)
		_, _ = fmt.Fprintf(p.talk, "\n  %s\n\n", url)
		p.sayf("Enter the code %s there.", code)
		p.say("Waiting for you to finish there ...")
	}
}

func prompt(p *plugin, name string) func(url, code string) {
	return func(url, code string) {
		p.sayf("To log in at %s, visit in your browser:", name)
		_, _ = fmt.Fprintf(p.talk, "\n  %s\n\n", url)
		if code != "" {
			p.sayf("The page shows the code %s. Go on there only if it is the same.", code)
		} else {
			p.say("This backend hands its credential through the browser: use one that you trust.")
		}
		p.say("Waiting for the browser ...")
	}
}

// choose drops services that this command line did not ask for, and fails if one that it
// asked for is missing. Without --service the page decides.
func (b *bindURL) choose(granted []v1alpha1.APIServiceExportRequest) ([]v1alpha1.APIServiceExportRequest, error) {
	if len(granted) == 0 {
		return nil, errors.New("no service was chosen")
	}
	var chosen []v1alpha1.APIServiceExportRequest
	var offered []string
	for _, r := range granted {
		names := serviceNames(r)
		offered = append(offered, names...)
		if len(b.services) > 0 && slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(b.services, n) }) {
			b.sayf("Left out %s, which --service does not name", strings.Join(names, ", "))
			continue
		}
		chosen = append(chosen, r)
	}
	for _, s := range b.services {
		if !slices.Contains(offered, s) {
			return nil, fmt.Errorf("service %s was not granted: it does not exist, you may not bind it, or it was not chosen in the browser; granted was %s", s, strings.Join(offered, ", "))
		}
	}
	return chosen, nil
}

func serviceNames(r v1alpha1.APIServiceExportRequest) []string {
	names := make([]string, len(r.Spec.Resources))
	for i, resource := range r.Spec.Resources {
		names[i] = resource.String()
	}
	return names
}
