// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
)

// APIServer is how App Clusters reach the Control Plane Cluster's API server.
type APIServer struct {
	URL           string // https
	TLSServerName string // name in the certificate, if not that of URL
	CAData        []byte // PEM; empty means the system's roots of the App Cluster
}

// Options configure an Exporter. Provider, Sealer and ExternalURL belong together
// and are needed for the HTTP handshake alone.
type Options struct {
	// Name is how the backend calls itself to people. Default "Klutch".
	Name string
	// Version is the backend's version, such as v1.2.0. Default "v0.0.0".
	Version string
	// ExternalURL is where browsers and kubectl-bind reach Handler: scheme and
	// host; https, or http to a loopback address.
	ExternalURL string
	// APIServer is what the kubeconfigs of tenants say. The zero value means
	// what the rest.Config says.
	APIServer APIServer
	// NamespacePrefix begins the names of tenant namespaces. Default "cluster".
	NamespacePrefix string

	// Provider logs people in.
	Provider *auth.Provider
	// Sealer seals cookies and one-time codes. All replicas need the same keys.
	Sealer *auth.Sealer

	// Catalog says what is on offer. Default: the APIServiceExportTemplates.
	Catalog Catalog
	// Authorizer says who may bind what. Default: SubjectAccessReviews for the
	// names that Users gives.
	Authorizer Authorizer
	// Users maps identities to RBAC names for the default Authorizer.
	Users Users

	// TokenTTL is how long a tenant's token lives, at least 10 minutes. It is
	// renewed after two thirds of it. Default one hour.
	TokenTTL time.Duration
	// AllowLegacyCLI serves the CLI of Klutch itself, whose credentials travel in
	// a URL to a loopback address.
	AllowLegacyCLI bool
}

const (
	minTokenTTL = 10 * time.Minute // what a kube-apiserver issues at least
	userAgent   = "klutch-backend"
)

var prefixPattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,22}[a-z0-9])?$`)

// An Exporter serves the handshake and runs the controllers of the control plane's
// half. Create it with New.
type Exporter struct {
	opts     Options
	external *url.URL
	config   *rest.Config
	kube     kubernetes.Interface
	dyn      dynamic.Interface
	meta     metadata.Interface
}

// New returns an Exporter that works with the rights of config, which should be
// those of the shipped ClusterRole. It does no I/O.
func New(config *rest.Config, opts Options) (*Exporter, error) {
	external, err := opts.complete()
	if err != nil {
		return nil, err
	}
	e := &Exporter{opts: opts, external: external, config: rest.CopyConfig(config)}
	e.config.QPS = -1 // the API server's priority and fairness is the limit
	e.config.UserAgent = cmp.Or(e.config.UserAgent, userAgent)
	if e.kube, err = kubernetes.NewForConfig(e.config); err != nil {
		return nil, err
	}
	if e.dyn, err = dynamic.NewForConfig(e.config); err != nil {
		return nil, err
	}
	if e.meta, err = metadata.NewForConfig(e.config); err != nil {
		return nil, err
	}
	if e.opts.Catalog == nil {
		e.opts.Catalog = templates{e.dyn}
	}
	if e.opts.Authorizer == nil {
		e.opts.Authorizer = reviews{e.kube, e.opts.Users}
	}
	return e, nil
}

// complete sets defaults and checks; it returns ExternalURL parsed.
func (o *Options) complete() (*url.URL, error) {
	o.Name = cmp.Or(o.Name, "Klutch")
	o.Version = cmp.Or(o.Version, "v0.0.0")
	o.NamespacePrefix = strings.TrimSuffix(cmp.Or(o.NamespacePrefix, "cluster"), "-")
	o.TokenTTL = cmp.Or(o.TokenTTL, time.Hour)
	switch {
	case !prefixPattern.MatchString(o.NamespacePrefix):
		return nil, fmt.Errorf("namespace prefix %q: must match %s", o.NamespacePrefix, prefixPattern)
	case o.TokenTTL < minTokenTTL:
		return nil, fmt.Errorf("token lifetime %s: must be at least %s", o.TokenTTL, minTokenTTL)
	case o.APIServer.URL != "" && !strings.HasPrefix(o.APIServer.URL, "https://"):
		return nil, errors.New("API server URL: must begin with https://")
	case (o.Provider == nil) != (o.Sealer == nil):
		return nil, errors.New("the handshake needs both Provider and Sealer")
	}
	if err := o.Users.validate(); err != nil {
		return nil, err
	}
	if o.Provider == nil {
		return &url.URL{}, nil
	}
	return parseExternal(o.ExternalURL)
}

func parseExternal(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("external URL: %w", err)
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("external URL %q: must be a scheme and a host", u.Redacted())
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return nil, fmt.Errorf("external URL %q: must be https, or http to a loopback address", u.Redacted())
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// url returns the absolute URL of a path of Handler.
func (e *Exporter) url(path string) string { return e.external.JoinPath(path).String() }

// Handler serves the HTTP handshake.
func (e *Exporter) Handler() http.Handler { return http.NotFoundHandler() }

// Run runs the controllers until ctx is done.
func (e *Exporter) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
