// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A login is a person's way in at a backend, through a browser here or elsewhere.
type login struct {
	*plugin
	services  []string // all that is asked for; the page decides if there are none
	noBrowser bool
	device    bool
	preselect []string // on the page, beside services
}

// flags adds the flags of a login.
func (l *login) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&l.ca, "backend-certificate-authority", "", "File with the certificate authority of the backend, in place of the system's")
	flags.BoolVar(&l.noBrowser, "no-browser", false, "Only print the URL of the login, for a browser on this machine")
	flags.BoolVar(&l.device, "device", false, "Log in with a browser on any other device, by a code to type there")
}

func (l *login) client(url string) (*bind.Client, error) {
	opts := bind.ClientOptions{}
	if l.ca != "" {
		data, err := os.ReadFile(l.ca)
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

// authenticate lets the person log in.
func (l *login) authenticate(ctx context.Context, config *rest.Config, client *bind.Client) (*v1alpha1.BindingResponse, error) {
	provider, err := client.Discover(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := l.clusterID(ctx, config)
	if err != nil {
		return nil, err
	}
	response, err := client.Login(ctx, provider, l.options(provider, cluster))
	if err != nil {
		return nil, err
	}
	l.sayf("Logged in at %s as %s", provider.ProviderPrettyName, response.Authentication.OAuth2CodeGrant.ID)
	return response, nil
}

// clusterID says so when it makes the namespace.
func (l *login) clusterID(ctx context.Context, config *rest.Config) (string, error) {
	id, err := bind.KnownClusterID(ctx, config)
	if err != nil || id != "" {
		return id, err
	}
	if id, err = bind.ClusterID(ctx, config); err != nil {
		return "", err
	}
	l.sayf("Created namespace %s, by whose UID the platform knows this cluster", v1alpha1.Namespace)
	l.changed = append(l.changed, "created namespace "+v1alpha1.Namespace)
	return id, nil
}

// requests returns the requests that were granted at a backend, and the kubeconfig. Bindings that use the
// same tenant go on with the new credential, since the login has ended the one before.
func (l *login) requests(ctx context.Context, config *rest.Config, client *bind.Client, backend string) ([]v1alpha1.APIServiceExportRequest, []byte, error) {
	response, err := l.authenticate(ctx, config, client)
	if err != nil {
		return nil, nil, err
	}
	renewed, err := bind.Renew(ctx, config, backend, response.Kubeconfig)
	for _, secret := range renewed {
		l.sayf("Replaced the credential in secret %s/%s", v1alpha1.Namespace, secret)
		l.changed = append(l.changed, fmt.Sprintf("replaced the credential in secret %s/%s", v1alpha1.Namespace, secret))
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
	chosen, err := l.choose(all)
	return chosen, response.Kubeconfig, err
}

func (l *login) options(provider *v1alpha1.BindingProvider, cluster string) bind.LoginOptions {
	opts := bind.LoginOptions{ClusterID: cluster, Services: slices.Concat(l.services, l.preselect), Device: l.device}
	if l.device {
		opts.Prompt = promptDevice(l.plugin, provider.ProviderPrettyName)
		return opts
	}
	opts.Prompt = prompt(l.plugin, provider.ProviderPrettyName)
	if !l.noBrowser {
		opts.Open = openOrHint(l.plugin, provider)
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
		p.say("Waiting for you to finish there ... If you cancel there, press Ctrl-C here.")
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
func (l *login) choose(granted []v1alpha1.APIServiceExportRequest) ([]v1alpha1.APIServiceExportRequest, error) {
	if len(granted) == 0 {
		return nil, errors.New("no service was chosen")
	}
	var offered []string
	for _, r := range granted {
		offered = append(offered, serviceNames(r)...)
	}
	chosen := granted
	if len(l.services) > 0 {
		chosen = only(l.plugin, granted, l.services, "which --service does not name")
	}
	for _, s := range l.services {
		if !slices.Contains(offered, s) {
			return nil, fmt.Errorf("service %s was not granted: it does not exist, you may not bind it, or it was not chosen in the browser; granted was %s", s, strings.Join(offered, ", "))
		}
	}
	return chosen, nil
}

// only is what of requests is for the named services. It says what else is left out, and why.
func only(p *plugin, requests []v1alpha1.APIServiceExportRequest, names []string, why string) (kept []v1alpha1.APIServiceExportRequest) {
	for _, r := range requests {
		r.Spec.Resources = slices.DeleteFunc(slices.Clone(r.Spec.Resources), func(resource v1alpha1.APIServiceExportRequestResource) bool {
			unnamed := !slices.Contains(names, resource.String())
			if unnamed {
				p.sayf("Left out %s, %s", resource.String(), why)
			}
			return unnamed
		})
		if len(r.Spec.Resources) > 0 {
			kept = append(kept, r)
		}
	}
	return kept
}

func serviceNames(r v1alpha1.APIServiceExportRequest) []string {
	names := make([]string, len(r.Spec.Resources))
	for i, resource := range r.Spec.Resources {
		names[i] = resource.String()
	}
	return names
}

var errNoBrowser = errors.New("no browser here")

// open starts the browser of $BROWSER, or the desktop's where there is one and the
// person sits at a terminal.
func openBrowser(p *plugin, url string) error {
	if browsers := p.getenv("BROWSER"); browsers != "" {
		return openOneOf(p, strings.Split(browsers, ":"), url)
	}
	switch {
	case !p.terminal || p.getenv("SSH_CONNECTION") != "":
		return errNoBrowser
	case runtime.GOOS == "darwin":
		return p.start("open", url)
	case p.getenv("DISPLAY") != "" || p.getenv("WAYLAND_DISPLAY") != "":
		return p.start("xdg-open", url)
	}
	return errNoBrowser
}

// openOneOf tries each command of $BROWSER, in which %s stands for the URL.
func openOneOf(p *plugin, browsers []string, url string) error {
	err := errNoBrowser
	for _, b := range browsers {
		words := strings.Fields(b)
		if len(words) == 0 {
			continue
		}
		if !strings.Contains(b, "%s") {
			words = append(words, "%s")
		}
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "%s", url)
		}
		if err = p.start(words[0], words[1:]...); err == nil {
			return nil
		}
	}
	return err
}

// startProgram does not wait: a browser may run for days.
func startProgram(program string, args ...string) error {
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives the command
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}
