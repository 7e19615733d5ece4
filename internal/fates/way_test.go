// SPDX-License-Identifier: Apache-2.0

package fates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where no API server answers: nothing does, or something else, or one that is not trusted.
func TestWay(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		code                           int
		err                            error
		unanswered, distrusted, outage bool
	}{
		"an answer":            {code: 200},
		"an error of a server": {code: 500},
		"no server is ready":   {code: 503, outage: true},
		"no server behind it":  {code: 502, outage: true},
		"refused":              {err: refused, outage: true},
		"refused, by a client": {err: fmt.Errorf("get: %w", &url.Error{Op: "Get", Err: refused}), unanswered: true, outage: true},
		"another CA":           {err: &url.Error{Op: "Get", Err: x509.UnknownAuthorityError{}}, unanswered: true, distrusted: true, outage: true},
		"another certificate":  {err: &tls.CertificateVerificationError{Err: errors.New("no")}, distrusted: true},
		"too late":             {err: context.DeadlineExceeded},
		"ended":                {err: &url.Error{Op: "Get", Err: context.Canceled}, unanswered: true},
		"what is no server's":  {err: errors.New("invalid character '<'")},
		"an API server's":      {err: status(404, metav1.StatusReasonNotFound)},
	} {
		if IsUnanswered(c.err) != c.unanswered || IsDistrusted(c.err) != c.distrusted || IsOutage(&http.Response{StatusCode: c.code}, c.err) != c.outage {
			t.Errorf("%s: unanswered %t, distrusted %t, outage %t", name, IsUnanswered(c.err), IsDistrusted(c.err), IsOutage(&http.Response{StatusCode: c.code}, c.err))
		}
	}
}
