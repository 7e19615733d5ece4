// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/tls"
	"slices"
)

// Replica returns one more process of the backend, which is not started yet, and the
// address at which it will listen. People reach all replicas at another URL: that of
// what stands in front of them, with the same certificate.
func (s *Stack) Replica(ctx context.Context, name, externalURL string) (p *Process, address string, err error) {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, "", err
	}
	p = s.process("backend", "http://"+ports[1]+"/readyz", append(slices.Clone(s.Backend.Args), // the last of a flag counts
		"--external-url", externalURL, "--listen-address", ports[0], "--health-address", ports[1])...)
	p.Name, p.Env = name, []string{"POD_NAME=" + name}
	return p, ports[0], nil
}

// KeyFile is the path of the backend's private key.
func (s *Stack) KeyFile() string { return s.keyFile }

// Certificate is that of the backend.
func (s *Stack) Certificate() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(s.BackendCA, s.keyFile)
}
