// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/redirect"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// APIServer is how App Clusters reach the Control Plane Cluster's API server. What is
// empty is taken from the rest.Config.
type APIServer struct {
	URL           string // https
	TLSServerName string // name in the certificate, if not that of URL
	CAData        []byte // PEM
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
	// APIServer is what the kubeconfigs of tenants say.
	APIServer APIServer
	// NamespacePrefix begins the names of tenant namespaces. Default "cluster".
	NamespacePrefix string

	// Provider logs people in.
	Provider *auth.Provider
	// Sealer seals cookies and one-time codes. All replicas need the same keys.
	Sealer *auth.Sealer
	// Handshake tunes what Handler serves. The zero value works.
	Handshake Handshake

	// Catalog has the services on offer. Default: the APIServiceExportTemplates.
	Catalog Catalog
	// Authorizer says who may bind what. Default: SubjectAccessReviews for the
	// names that Users gives.
	Authorizer Authorizer
	// Users maps identities to RBAC names for the default Authorizer.
	Users Users

	// TokenTTL is how long a tenant's token lives, at least 10 minutes. It is
	// renewed after two thirds of it. Default one hour, which is the most that the
	// shipped admission policy lets through.
	TokenTTL time.Duration

	// MaxLoginAge is how long after the last login, or bind of a machine, the credential
	// of a tenant is renewed: then it ends, until the next one. Zero means for ever.
	MaxLoginAge time.Duration

	// ReviewInterval is how often the right to what was exported is checked again,
	// in case nothing else gives reason to. Default ten minutes.
	ReviewInterval time.Duration
	// Caps bound what tenants can make the Control Plane Cluster hold. The zero
	// value works.
	Caps Caps
	// RemovalsAtOnce is how many tenants may be removed at the same time, with their
	// objects or without: beyond it each waits for a word of its own. Default 3, less
	// than zero means any number.
	RemovalsAtOnce int
	// Gates are names of gates that are closed for each tenant until the platform
	// team, or a program of theirs, opens them: with the annotation
	// gate.klutch.anynines.com/<name>=open on the tenant namespace. With any other
	// value such an annotation closes a gate for that tenant alone.
	Gates []string
	// Gate, if any, is asked beside them.
	Gate Gate

	// AdoptKlutchTenants are the namespaces of tenants of Klutch's backend that become ours
	// when their people bind again; "all" is every one. It needs deploy/adoption.
	AdoptKlutchTenants []string

	// PrefixedAPIs are the cluster-scoped APIs, "<resource>.<group>", that are offered where
	// their template says clusterScopedIsolation: Prefixed. Tenants of such an API read each
	// other's objects of it. It needs deploy/prefixed.
	PrefixedAPIs []string

	// KlutchKonnectors lets every tenant use Klutch's konnector, as the label
	// klutch.anynines.com/klutch-konnector does it for one. It needs deploy/klutch-konnectors.
	KlutchKonnectors bool

	// BreakingChanges of an API are held from App Clusters that have it already,
	// which is the default, or allowed; a template may say otherwise for its API.
	BreakingChanges v1alpha1.BreakingChanges
}

const (
	reviewInterval = 10 * time.Minute
	removalsAtOnce = 3
)

var prefixPattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,22}[a-z0-9])?$`)

// complete sets defaults and checks; it returns ExternalURL parsed.
func (o *Options) complete() (*url.URL, error) {
	o.Name = cmp.Or(o.Name, "Klutch")
	o.Version = cmp.Or(o.Version, "v0.0.0")
	o.NamespacePrefix = strings.TrimSuffix(cmp.Or(o.NamespacePrefix, "cluster"), "-")
	o.TokenTTL = cmp.Or(o.TokenTTL, time.Hour)
	o.RemovalsAtOnce = cmp.Or(o.RemovalsAtOnce, removalsAtOnce)
	o.Caps = o.Caps.withDefaults()
	o.ReviewInterval = cmp.Or(o.ReviewInterval, reviewInterval)
	o.BreakingChanges = cmp.Or(o.BreakingChanges, v1alpha1.BreakingChangesHold)
	switch {
	case !prefixPattern.MatchString(o.NamespacePrefix):
		return nil, fmt.Errorf("namespace prefix %q: must match %s", o.NamespacePrefix, prefixPattern)
	case o.TokenTTL < tenant.MinTokenTTL:
		return nil, fmt.Errorf("token lifetime %s: must be at least %s", o.TokenTTL, tenant.MinTokenTTL)
	case o.MaxLoginAge != 0 && o.MaxLoginAge < o.TokenTTL:
		return nil, fmt.Errorf("age of logins %s: must be at least that of a token, %s", o.MaxLoginAge, o.TokenTTL)
	case o.APIServer.URL != "" && !strings.HasPrefix(o.APIServer.URL, "https://"):
		return nil, errors.New("API server URL: must begin with https://")
	case (o.Provider == nil) != (o.Sealer == nil):
		return nil, errors.New("the handshake needs both Provider and Sealer")
	}
	if err := errors.Join(o.Users.validate(), o.Handshake.validateIssuers(o.Provider, o.Users), tenant.CheckGates(o.Gates)); err != nil {
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
	case u.Scheme != "https" && (u.Scheme != "http" || !redirect.IsLoopback(u.Hostname())):
		return nil, fmt.Errorf("external URL %q: must be https, or http to a loopback address", u.Redacted())
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// Caps bound what one identity and one tenant can make the Control Plane Cluster
// hold. Zero means the default, less than zero no cap. A cap that is lowered takes
// nothing away from tenants that are beyond it.
type Caps struct {
	// Tenants of all identities together. Default 5000.
	Tenants int
	// PerIdentity is how many App Clusters one identity may bind. Default 50.
	PerIdentity int
	// Namespaces is how many service namespaces one tenant may have. Default 200.
	Namespaces int
	// Objects is how many objects of each exported API may be in one service
	// namespace: a ResourceQuota says so, which the backend leaves alone when it
	// carries the annotation [CreateOnlyAnnotation]. Default 1000.
	Objects int
}

// CreateOnlyAnnotation on a ResourceQuota of the backend, with whatever value, says
// that the backend leaves it alone from then on.
const CreateOnlyAnnotation = v1alpha1.CreateOnlyAnnotation

func (c Caps) withDefaults() Caps {
	return Caps{cmp.Or(c.Tenants, 5000), cmp.Or(c.PerIdentity, 50), cmp.Or(c.Namespaces, 200), cmp.Or(c.Objects, 1000)}
}
