// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrGateClosed is wrapped by the errors of a gate that lets a tenant wait.
var ErrGateClosed = errors.New("closed")

const gateRetry = 5 * time.Second

// gates stand between "the tenant is made" and "its objects are synced".
type gates struct {
	opts   *Options
	caches *Caches
}

// whyClosed returns an error that wraps ErrGateClosed if a gate of a tenant is closed.
func (g *gates) whyClosed(ctx context.Context, namespace string) error {
	ns, err := g.caches.namespace(ctx, namespace)
	if fates.Is(err, fates.Absent) {
		return nil
	}
	if err != nil {
		return err
	}
	if closed := g.closed(ns.GetAnnotations()); len(closed) > 0 {
		name := v1alpha1.GateAnnotationPrefix + closed[0]
		return fmt.Errorf("gate %s is %w: the platform team opens it with the annotation %s=%s on namespace %s",
			strings.Join(closed, ", "), ErrGateClosed, name, v1alpha1.GateOpen, namespace)
	}
	h, ok := holderOf(ns)
	if g.opts.Gate == nil || !ok {
		return nil
	}
	return g.opts.Gate(ctx, namespace, h)
}

// closed are the gates of the backend, and the gates that stand on a tenant
// namespace, that are not open there.
func (g *gates) closed(annotations map[string]string) []string {
	wanted := slices.Clone(g.opts.Gates)
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
	return v1alpha1.False(v1alpha1.ConditionAdmitted, v1alpha1.SeverityInfo, v1alpha1.ReasonGateClosed, text.Clip(fates.Stable(err), longestReason)), nil
}

// CheckGates returns an error if no annotation can open a gate of that name.
func CheckGates(names []string) error {
	for _, name := range names {
		if problems := validation.IsQualifiedName(v1alpha1.GateAnnotationPrefix + name); len(problems) > 0 {
			return fmt.Errorf("gate %q: %s", name, problems[0])
		}
	}
	return nil
}
