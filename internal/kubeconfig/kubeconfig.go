// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig reads and writes the kubeconfigs that a backend hands to
// the konnectors of its tenants.
//
// Such a kubeconfig comes from the other side, so it is data: [Read] copies five
// fields out of it and refuses everything else, above all what would make a
// client run a program, read a file, use a proxy, impersonate someone or skip TLS.
// It is never handed to clientcmd.
package kubeconfig

import (
	"k8s.io/client-go/rest"
)

// Kubeconfig is all that a kubeconfig of a tenant says.
type Kubeconfig struct {
	// Server is the URL of the API server, https and without a query.
	Server string
	// CAData are the PEM certificates to trust; empty means those of the system.
	CAData []byte
	// TLSServerName is what the certificate is checked against, if it is not the
	// host of Server.
	TLSServerName string
	// Namespace is the tenant namespace.
	Namespace string
	// Token is the bearer token.
	Token string
}

// RESTConfig returns a client configuration with nothing but the fields of k. Its
// connections refuse link-local addresses, whatever a name resolves to, and bound what
// answers can take: their size, their time, and all of them together. What is too large
// is an [*ExcessError].
func (k *Kubeconfig) RESTConfig() *rest.Config {
	return bound(&rest.Config{
		Host:            k.Server,
		BearerToken:     k.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: k.CAData, ServerName: k.TLSServerName},
		Dial:            dial,
	})
}
