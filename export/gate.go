// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Tenant is one App Cluster of one identity.
type Tenant struct {
	Namespace       string // the tenant namespace
	Issuer, Subject string // of the identity
	Cluster         string // as the client named it
}

// ErrGateClosed is wrapped by the errors of a Gate that lets a tenant wait.
var ErrGateClosed = errors.New("closed")

// A Gate stands between "the tenant is made" and "its objects are synced": for quota,
// policies, a Secret that has to be there first. While one is closed the tenant can
// bind and gets schemas, but no service namespaces, and can make or change nothing in
// those that it has.
type Gate interface {
	// Open returns nil for a tenant that may go on, an error that wraps
	// ErrGateClosed and says to people what is awaited for one that has to wait, and
	// any other error if it cannot tell: then everything stays as it is. It is asked
	// every few seconds while it is closed, and now and then afterwards.
	Open(ctx context.Context, t Tenant) error
}

// A GateFunc is a Gate.
type GateFunc func(ctx context.Context, t Tenant) error

// Open calls f.
func (f GateFunc) Open(ctx context.Context, t Tenant) error { return f(ctx, t) }

const gateRetry = 5 * time.Second

// admitted returns an error that wraps ErrGateClosed if a gate of a tenant is closed.
func (c *control) admitted(ctx context.Context, namespace string) error {
	ns, err := c.tenantNamespace(ctx, namespace)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if closed := c.closedGates(ns.GetAnnotations()); len(closed) > 0 {
		name := v1alpha1.GateAnnotationPrefix + closed[0]
		return fmt.Errorf("gate %s is %w: the platform team opens it with the annotation %s=%s on namespace %s",
			strings.Join(closed, ", "), ErrGateClosed, name, v1alpha1.GateOpen, namespace)
	}
	h, ok := holderOf(ns)
	if c.opts.Gate == nil || !ok {
		return nil
	}
	return c.opts.Gate.Open(ctx, Tenant{Namespace: namespace, Issuer: h.Issuer, Subject: h.Subject, Cluster: h.Cluster})
}

// closedGates are the gates of the backend, and those that stand on a tenant
// namespace, that are not open there.
func (c *control) closedGates(annotations map[string]string) []string {
	wanted := slices.Clone(c.opts.Gates)
	for key := range annotations {
		if name, ok := strings.CutPrefix(key, v1alpha1.GateAnnotationPrefix); ok {
			wanted = append(wanted, name)
		}
	}
	slices.Sort(wanted)
	return slices.DeleteFunc(slices.Compact(wanted), func(name string) bool {
		return annotations[v1alpha1.GateAnnotationPrefix+name] == v1alpha1.GateOpen
	})
}

// admission says on a ClusterBinding whether its tenant may sync.
func admission(err error) (v1alpha1.Condition, error) {
	if err == nil {
		return v1alpha1.True(v1alpha1.ConditionAdmitted), nil
	}
	if !errors.Is(err, ErrGateClosed) {
		return v1alpha1.Condition{}, err
	}
	return v1alpha1.False(v1alpha1.ConditionAdmitted, v1alpha1.SeverityInfo, v1alpha1.ReasonGateClosed, err.Error()), nil
}

func checkGates(names []string) error {
	for _, name := range names {
		if problems := validation.IsQualifiedName(v1alpha1.GateAnnotationPrefix + name); len(problems) > 0 {
			return fmt.Errorf("gate %q: %s", name, problems[0])
		}
	}
	return nil
}
