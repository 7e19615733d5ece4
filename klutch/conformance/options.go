// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// A Login stands for a person with a browser: it begins at url, logs in, accepts the
// services that are preselected, and follows each redirect, the last one to the loopback
// address too. It returns when the browser is done.
type Login func(ctx context.Context, url string) error

// Options say what to test. URL, Service and Login are required.
type Options struct {
	// URL of the backend, scheme and host.
	URL string
	// CAData are PEM certificates that vouch for the backend, in place of those of
	// the system.
	CAData []byte
	// Service is a namespaced API that the people who log in may bind,
	// "<resource>.<group>".
	Service string
	// Login is that of a first person.
	Login Login
	// OtherLogin is that of a second person. Nil means the same person with another
	// App Cluster, which shows less.
	OtherLogin Login
	// DeviceLogin is a login of the same person as Login on another device: they type
	// code at url, log in, and accept the preselected services. Nil leaves that out.
	DeviceLogin func(ctx context.Context, url, code string) error
	// MachineToken is an access token of the issuer, for a machine that may bind
	// Service. Nil leaves that out.
	MachineToken func(ctx context.Context) (string, error)
	// Refused is a service on offer that neither may bind. Empty leaves that out.
	Refused string
	// Object is one of Service that the API accepts; its name and namespace are the
	// suite's. Nil leaves out what needs one.
	Object *unstructured.Unstructured
	// ControlPlane reads the Control Plane Cluster as its administrator. Nil leaves
	// out what only they can see.
	ControlPlane *rest.Config
	// Patience is how long anything may take. Default 90 seconds, since a backend
	// may give a request a minute before it fails.
	Patience time.Duration
}
