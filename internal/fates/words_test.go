// SPDX-License-Identifier: Apache-2.0

package fates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The same trouble has the same words at each attempt.
func TestStable(t *testing.T) {
	reset := func(port int) error {
		local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port}
		op := &net.OpError{Op: "read", Net: "tcp", Source: local, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(port)), Port: 443}, Err: syscall.ECONNRESET}
		return &url.Error{Op: "Patch", URL: "https://api/a", Err: op}
	}
	for name, c := range map[string]struct {
		one, two      error
		says, explain string
	}{
		"a connection": {reset(1), reset(2), `Patch "https://api/a": read: connection reset by peer`, "read: connection reset by peer"},
		"a webhook's connection": {
			apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "a.b.c": %w`, reset(1))), apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "a.b.c": %w`, reset(2))),
			`Internal error occurred: failed calling webhook "a.b.c": Patch "https://api/a": read: connection reset by peer`,
			`Internal error occurred: failed calling webhook "a.b.c": Patch "https://api/a": read: connection reset by peer`,
		},
		"a name": {
			errors.New("dial tcp: lookup hook.svc on 10.0.0.10:53: read udp 10.0.0.1:4711->10.0.0.10:53: i/o timeout"),
			errors.New("dial tcp: lookup hook.svc on 10.0.0.11:53: read udp [fd00::1]:4712->[fd00::2]:53: i/o timeout"),
			"dial tcp: lookup hook.svc: read: i/o timeout", "dial tcp: lookup hook.svc: read: i/o timeout",
		},
		"one of its addresses": {
			errors.New("dial tcp 10.0.0.1:443: connect: connection refused"), errors.New("dial tcp [fd00::1]:443: connect: connection refused"),
			"dial: connect: connection refused", "dial: connect: connection refused",
		},
		"a stream": {
			errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=17, ErrCode=NO_ERROR, debug=""`),
			errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1999, ErrCode=NO_ERROR, debug=""`),
			`http2: server sent GOAWAY and closed the connection; ErrCode=NO_ERROR, debug=""`, `http2: server sent GOAWAY and closed the connection; ErrCode=NO_ERROR, debug=""`,
		},
		"a certificate": {
			x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 2026-11-25T10:00:00Z is after 2026-11-24T10:00:00Z"},
			x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 2026-11-25T10:00:01Z is after 2026-11-24T10:00:00Z"},
			"x509: certificate has expired or is not yet valid: it is after 2026-11-24T10:00:00Z", "its certificate is not valid, or not now",
		},
		"no answer": {fmt.Errorf("read target: %w", &url.Error{Err: timeout{}}), fmt.Errorf("read target: %w", &url.Error{Err: timeout{}}), `read target:  "": too late`, "no answer in time"},
		"what an API server says of an object": {
			errors.New(`spec.address: Invalid value: "10.0.0.1:443"`), errors.New(`spec.address: Invalid value: "10.0.0.1:443"`),
			`spec.address: Invalid value: "10.0.0.1:443"`, `spec.address: Invalid value: "10.0.0.1:443"`,
		},
	} {
		if one, two := Stable(c.one), Stable(c.two); one != c.says || two != c.says {
			t.Errorf("%s: %q, then %q, want %q", name, one, two, c.says)
		}
		if one, two := Explain(c.one), Explain(c.two); one != c.explain || two != c.explain {
			t.Errorf("%s: explained as %q, then %q, want %q", name, one, two, c.explain)
		}
	}
}

type timeout struct{}

func (timeout) Error() string { return "too late" }
func (timeout) Timeout() bool { return true }
