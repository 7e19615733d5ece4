// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// explain words err so that the same trouble always gives the same message: without
// port numbers of our own, times and URLs.
func explain(err error) string {
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
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return clip(answer.Status().Message)
	}
	return clip(innermost(err).Error())
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

// trouble is explain for an error that may be nil.
func trouble(err error) string {
	if err == nil {
		return ""
	}
	return explain(err)
}

// isExcess tells whether more came from a Control Plane Cluster than is let in.
func isExcess(err error) bool {
	_, is := errors.AsType[*kubeconfig.ExcessError](err)
	return is
}

// isNoAnswer tells whether nobody answered who could. What is too large is an answer.
func isNoAnswer(err error) bool {
	return !isExcess(err) && (apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err))
}

// maxMessage keeps what others can fill from filling our objects.
const maxMessage = 1024

func clip(message string) string { return clipTo(message, maxMessage) }

func clipTo(message string, most int) string {
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "…"
}
