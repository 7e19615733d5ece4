// SPDX-License-Identifier: Apache-2.0

package fates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
)

// IsUnanswered reports whether err says that a client of client-go had no answer at all, be it of an
// API server or of something else.
func IsUnanswered(err error) bool {
	_, is := errors.AsType[*url.Error](err)
	return is
}

// noAnswer reports whether err says that the network has led to no answer, or to none that is whole.
func noAnswer(err error) bool {
	_, is := errors.AsType[net.Error](err)
	return is || IsUnanswered(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// IsDistrusted reports whether err says that the certificate of what answers is not to be believed.
func IsDistrusted(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	return unknown || bad
}

// IsOutage reports whether a round trip has met no API server that is ready: the network has not
// led to one, or a proxy says that there is none. What the caller has ended is no outage.
func IsOutage(resp *http.Response, err error) bool {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case err != nil:
		_, is := errors.AsType[net.Error](err)
		return is
	default:
		return resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusBadGateway
	}
}
