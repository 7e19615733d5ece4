// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// minTokenTTL is what a kube-apiserver issues at least.
	minTokenTTL = 10 * time.Minute
	// userAgent is how the backend calls itself to API servers, and on what it makes.
	userAgent = "klutch-backend"
)

// options say what tenants are like. All of them are set.
type options struct {
	Platform        string // how the backend calls itself to people
	NamespacePrefix string // begins the names of tenant namespaces
	// APIServer is what the kubeconfigs of tenants say; what is empty is taken from
	// the ConfigMap cluster-info, or else from Backend.
	APIServer apiServer
	Backend   *rest.Config // of the backend itself

	TokenTTL       time.Duration
	MaxLoginAge    time.Duration // zero means for ever
	ReviewInterval time.Duration
	Caps           limits
	RemovalsAtOnce int // less than zero means any number
	Gates          []string
	Gate           func(ctx context.Context, namespace string, h holder) error // may be nil

	Pauses pauses
}

// An apiServer is how App Clusters reach the API server.
type apiServer struct {
	URL           string
	TLSServerName string
	CAData        []byte
}

// limits cap what identities and tenants can make; less than zero means no cap.
type limits struct{ Tenants, PerIdentity, Namespaces, Objects int }

// pauses are how long things take, or have to rest, elsewhere.
type pauses struct {
	// Settle is how long a token may still be believed whose anchor is gone: API
	// servers remember for ten seconds what they have found out about it. Whoever has
	// it must not read the next one with it.
	Settle time.Duration
	// Rotation is how old an anchor has to be for a login to rotate it: many logins at
	// once, or an answer that is asked for again, must not end the credential that
	// another one has just been given.
	Rotation time.Duration
	// Bind is how long a bind may take from the tenant namespace to the record.
	Bind time.Duration
	// Quota is how old a CRD has to be before a quota may name it: the API server
	// refuses all objects of a kind that nobody counts yet, and
	// kube-controller-manager looks for new kinds twice a minute.
	Quota time.Duration
}

func usualPauses() pauses {
	return pauses{Settle: 15 * time.Second, Rotation: time.Minute, Bind: 10 * time.Minute, Quota: 2 * time.Minute}
}

// tenants makes tenants and gives them their credentials, at any replica.
type tenants struct {
	clients

	opts        *options
	rights      *rights
	records     *records
	credentials *credentials
}

func newTenants(c clients, opts *options) *tenants {
	return &tenants{c, opts, &rights{clients: c}, &records{c}, &credentials{clients: c, opts: opts}}
}

// controllers keep tenants, and take them away. They run at one replica.
type controllers struct {
	tenants         *reconciler
	clusterBindings *heartbeats
	namespaces      *serviceNamespaces
	authorizations  *authorizations
	logins          *logins
}

func newControllers(t *tenants, seen *caches, resourceOf resourceOf) *controllers {
	known := &authorizations{opts: t.opts, records: t.records, caches: seen}
	logins := &logins{opts: t.opts, authorizations: known}
	gates := &gates{t.opts, seen}
	quotas := &quotas{t.clients, t.opts, seen}
	contents := &contents{t.clients, t.rights, resourceOf}
	breaker := &breaker{t.opts, seen}
	return &controllers{
		authorizations: known, logins: logins,
		tenants: &reconciler{clients: t.clients, opts: t.opts, tenants: t, caches: seen, quotas: quotas, logins: logins},
		clusterBindings: &heartbeats{
			clients: t.clients, opts: t.opts, caches: seen, gates: gates, logins: logins,
			removals: &removals{clients: t.clients, rights: t.rights, contents: contents, breaker: breaker},
		},
		namespaces: &serviceNamespaces{t.clients, t.opts, t, seen, gates, quotas, contents, breaker},
	}
}
