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
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

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
// connections refuse link-local addresses, whatever a name resolves to.
func (k *Kubeconfig) RESTConfig() *rest.Config {
	return &rest.Config{
		Host:            k.Server,
		BearerToken:     k.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: k.CAData, ServerName: k.TLSServerName},
		Dial:            dial,
	}
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: refuseAddress}
	return d.DialContext(ctx, network, address)
}

// refuseAddress is called with the address that a name has been resolved to.
func refuseAddress(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	return checkAddress(ap.Addr())
}

// checkAddress refuses what no API server can have: link-local addresses, where
// clouds serve credentials of the machine, and those that name no host.
func checkAddress(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	switch {
	case addr.IsLinkLocalUnicast():
		return fmt.Errorf("%s is a link-local address", addr)
	case addr.IsMulticast(), addr.IsUnspecified():
		return fmt.Errorf("%s is not the address of a host", addr)
	}
	return nil
}
