// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// MinTokenTTL is what a kube-apiserver issues at least.
	MinTokenTTL = 10 * time.Minute
	// UserAgent is how the backend calls itself to API servers, and on what it makes.
	UserAgent = "klutch-backend"
)

// Options say what tenants are like. All of them are set.
type Options struct {
	Platform        string // how the backend calls itself to people
	NamespacePrefix string // begins the names of tenant namespaces
	// APIServer is what the kubeconfigs of tenants say; what is empty is taken from
	// the ConfigMap cluster-info, or else from Backend.
	APIServer APIServer
	Backend   *rest.Config // of the backend itself

	TokenTTL       time.Duration
	MaxLoginAge    time.Duration // zero means for ever
	ReviewInterval time.Duration
	Caps           Limits
	RemovalsAtOnce int // less than zero means any number
	Gates          []string
	Gate           func(ctx context.Context, namespace string, h Holder) error // may be nil

	KlutchKonnectors bool // of all tenants may be Klutch's, else of those with the label

	Prefixed    func(api string) bool       // whether the cluster-scoped API is switched on
	Adopt       func(namespace string) bool // whether a tenant of the legacy backend may be adopted
	AdoptIssuer string                      // whose identities may have one adopted

	Pauses Pauses
}

// An APIServer is how App Clusters reach the API server.
type APIServer struct {
	URL           string
	TLSServerName string
	CAData        []byte
}

// Limits cap what identities and tenants can make; less than zero means no cap.
type Limits struct{ Tenants, PerIdentity, Namespaces, Objects int }

// Pauses are how long things take, or have to rest, elsewhere.
type Pauses struct {
	// Settle is how long a token may still be believed whose anchor is gone: API
	// servers remember for ten seconds what they have found out about it. Its
	// holder must not read the next one with it.
	Settle time.Duration
	// Rotation is how old an anchor has to be for a login to rotate it: many logins at
	// once, or an answer that is asked for again, must not end the credential that
	// another one has just been given.
	Rotation time.Duration
	// Bind is how long a bind may take from the tenant namespace to the record.
	Bind time.Duration
	// NewKind is how old a CRD has to be for kube-controller-manager to know it, which looks for
	// new kinds twice a minute. Before, the API server refuses all objects of a kind that a
	// quota names, and the garbage collector takes what a namespace that goes should leave.
	NewKind time.Duration
}

// UsualPauses are the pauses of a backend; tests have shorter ones.
func UsualPauses() Pauses {
	return Pauses{Settle: 15 * time.Second, Rotation: time.Minute, Bind: 10 * time.Minute, NewKind: 2 * time.Minute}
}
