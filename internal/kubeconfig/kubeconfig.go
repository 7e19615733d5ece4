// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig treats kubeconfigs that cross from one side to the other as
// what they are to us: five fields.
package kubeconfig

// Kubeconfig is all that one side tells the other about how to reach it.
type Kubeconfig struct {
	Server        string // https URL of the API server
	CAData        []byte // PEM; empty means the system's roots
	TLSServerName string // name in the certificate, if it is not that of Server
	Namespace     string // the namespace to work in
	Token         string // bearer token
}
