// SPDX-License-Identifier: Apache-2.0

package fates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
)

// Explain words err so that the same trouble always gives the same message: without
// port numbers of our own, times and URLs.
func Explain(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && !op.Timeout() {
		return explainOp(op)
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return "its certificate is not valid, or not now" // theirs has the time in it
	}
	var timeout interface{ Timeout() bool }
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer in time"
	}
	if said, is := Message(err); is {
		return stable(said)
	}
	return stable(innermost(err).Error())
}

func explainOp(op *net.OpError) string {
	if dns, ok := errors.AsType[*net.DNSError](op.Err); ok {
		return fmt.Sprintf("look up %s: %s", dns.Name, dns.Err)
	}
	return fmt.Sprintf("%s: %v", op.Op, innermost(op.Err))
}

func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// Stable is all that err says, less what is another at each attempt, and less ErrAgain: what people were told
// once is not told again.
func Stable(err error) string { return stable(strings.TrimPrefix(err.Error(), ErrAgain.Error()+": ")) }

// What differs from one attempt to the next, in the words of Go's network and of API servers that
// repeat them of a webhook: addresses, of which a name may have several, and ports; the number of
// a stream; the time.
var (
	addresses = regexp.MustCompile(`\b(dial|read|write) (?:tcp|udp)[46]? [^\s"]+?(?:->[^\s"]+)?: `)
	servers   = regexp.MustCompile(`(\blookup \S+) on \S+: `)
	streams   = regexp.MustCompile(`\bLastStreamID=\d+, `)
	times     = regexp.MustCompile(`current time \S+ is `)
)

func stable(said string) string {
	said = addresses.ReplaceAllString(said, "$1: ")
	said = servers.ReplaceAllString(said, "$1: ")
	said = streams.ReplaceAllString(said, "")
	return times.ReplaceAllString(said, "it is ")
}
