// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/klutch-go/sdk/internal/fates"
)

// An Answer is an error of the table of fates, as an API server or the way to it gives it.
type Answer struct {
	Kind fates.Kind
	Err  func(Request) error
}

// Gives reports whether r is answered with an error of that kind, and not with another one in its place.
func (a Answer) Gives(r Request) bool { return fates.Of(a.Err(r)) == a.Kind }

// Answers are errors of each kind that a request can meet. A few are others where an API server
// that gave them would lie, and a client can only believe it.
func Answers() []Answer {
	said := func(code int32, reason metav1.StatusReason, after int32, message string, causes ...metav1.StatusCause) func(Request) error {
		return func(r Request) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
				Details: &metav1.StatusDetails{Name: r.Object.Name, Group: r.Resource.Group, Kind: r.Resource.Resource, Causes: causes, RetryAfterSeconds: after},
			}}
		}
	}
	status := func(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) func(Request) error {
		return func(r Request) error {
			return said(code, reason, 0, fmt.Sprintf("widgets %q: %s", r.Object.Name, message), causes...)(r)
		}
	}
	forbidden := status(http.StatusForbidden, metav1.StatusReasonForbidden, "exceeded quota")
	const unserved = "the server could not find the requested resource"
	return []Answer{
		{fates.Unreachable, func(Request) error { return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED} }},
		{fates.Broken, status(http.StatusInternalServerError, metav1.StatusReasonInternalError, "failed calling webhook: connection refused")},
		{fates.TooLarge, status(http.StatusInternalServerError, "", "etcdserver: request is too large")},
		{fates.Failing, status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the request did not end in time")},
		{fates.Failing, status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "starting")},
		{fates.Damaged, status(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, "cannot be decoded")},
		{fates.Overloaded, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "slow down")},
		{fates.Unauthorized, status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")},
		{fates.Forbidden, forbidden},
		{fates.Terminating, status(http.StatusForbidden, metav1.StatusReasonForbidden, "namespace is being terminated", metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})},
		{fates.Unserved, func(r Request) error {
			if r.Subresource != "" || r.Resource.Resource == "namespaces" { // else the kind has none, as in TestPlainStatus, and the cluster no identity
				return apierrors.NewServiceUnavailable("starting")
			}
			return status(http.StatusNotFound, metav1.StatusReasonNotFound, unserved, metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse})(r)
		}},
		{fates.Conflict, status(http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")},
		{fates.Exists, status(http.StatusConflict, metav1.StatusReasonAlreadyExists, "already exists")},
		{fates.Invalid, func(r Request) error {
			return apierrors.NewInvalid(r.Resource.GroupVersion().WithKind("Widget").GroupKind(), r.Object.Name, field.ErrorList{field.Invalid(field.NewPath("spec"), nil, "a policy says no")})
		}},
		{fates.Undeclared, func(Request) error {
			return errors.New("failed to create typed patch object: .spec.size: field not declared in schema")
		}},
		{fates.Malformed, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, "makes no sense")},
		{fates.TooLarge, status(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728")},
		{fates.NotAllowed, status(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "not allowed")},
		{fates.NotAcceptable, status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "no such form")},
		{fates.Unsupported, status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "no such form")},
		{fates.Unreachable, status(http.StatusMovedPermanently, "", "moved")},
		{fates.Absent, func(r Request) error { // a webhook says so too
			if r.Verb == "get" || r.Subresource != "" { // else there is no such object, or the kind has none
				return apierrors.NewServiceUnavailable("starting")
			}
			return status(http.StatusNotFound, metav1.StatusReasonNotFound, "not found")(r)
		}},
		{fates.Contested, status(http.StatusConflict, metav1.StatusReasonConflict, "Apply failed with 1 conflict", metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "other"`, Field: ".spec.size",
		})},
		{fates.Replaced, func(r Request) error {
			return apierrors.NewInvalid(r.Resource.GroupVersion().WithKind("Widget").GroupKind(), r.Object.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), nil, "field is immutable")})
		}},
		{fates.Expired, status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")},
		{fates.Ahead, status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Too large resource version", metav1.StatusCause{Type: metav1.CauseTypeResourceVersionTooLarge})},
		{fates.Unserved, func(r Request) error { // as of a kind that has lost its status subresource, which its schema tells
			if r.Resource.Resource == "namespaces" {
				return apierrors.NewServiceUnavailable("starting")
			}
			return status(http.StatusNotFound, metav1.StatusReasonNotFound, unserved, metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse})(r)
		}},
		{fates.Forbidden, func(r Request) error { // a webhook chooses code and text, and sees no reads
			if r.Verb == "get" || r.Verb == "list" || r.Verb == "watch" {
				return forbidden(r)
			}
			return said(http.StatusNotFound, metav1.StatusReasonNotFound, 0, `admission webhook "plans.example.org" denied the request: there is no such plan`)(r)
		}},
		{fates.Overloaded, said(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 30, "too many requests, please try again later")},
		{fates.Failing, said(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 30, "the API server is shutting down")},
		{fates.Invalid, said(http.StatusInternalServerError, "", 0, "failed to create typed patch object (example.org/v1, Kind=Widget): .spec.size: expected string, got &value.valueUnstructured{Value:1}")},
	}
}
