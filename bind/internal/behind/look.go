// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

const (
	// overdue is for how long a deletion, or an object that no konnector has taken up, is
	// no news.
	overdue = 30 * time.Second
	page    = 500
	// mostPages bounds how many objects one look is about.
	mostPages = 20
)

// Reasons of an Object beside those of package sync.
const (
	ReasonDeleting   = "DeletionWaits"
	ReasonNotTakenUp = "NotTakenUp"
)

// An Object is one that is not in step.
type Object struct {
	Namespace, Name string
	Reason, Message string
	Since           time.Time
}

// Objects are those of one API that are not in step, the oldest first.
type Objects struct {
	Behind []Object
	Cut    bool // there are more than one look is about
}

// A Cluster is what people may read of one.
type Cluster struct {
	Objects metadata.Interface
	Events  dynamic.Interface
}

// Look reads what is written on the objects of a resource, metadata only and page by page, and
// what Events say of those that the konnector may not write to.
func Look(ctx context.Context, c Cluster, b *v1alpha1.APIServiceBinding, resource schema.GroupVersionResource, now time.Time) (Objects, error) {
	var found Objects
	denied := denialsOf(ctx, c.Events, b)
	opts := metav1.ListOptions{Limit: page}
	for range mostPages {
		list, err := c.Objects.Resource(resource).List(ctx, opts)
		if err != nil {
			return found, err
		}
		for i := range list.Items {
			if o, ok := judge(&list.Items[i], denied, now); ok {
				found.Behind = append(found.Behind, o)
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			break
		}
	}
	found.Cut = opts.Continue != ""
	slices.SortStableFunc(found.Behind, func(a, b Object) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return found, nil
}

// denials are what the konnector could say of objects in Events alone, since it may not write to
// them, waits for an answer, or runs no Sync of theirs.
type denials struct {
	all        string // of whatever it has not taken up; empty if nothing
	namespaces string // what the provider has against some namespaces
	of         map[subject]denial
}

// A subject is an object that Events are about. Who may make Events in one namespace says nothing
// of objects in another.
type subject struct {
	namespace string
	uid       types.UID
}

type denial struct {
	reason, message string
	since           time.Time
}

// denialsOf are those of a binding that counts any, as far as the person may read Events.
func denialsOf(ctx context.Context, events dynamic.Interface, b *v1alpha1.APIServiceBinding) denials {
	d := denials{of: map[subject]denial{}}
	if c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionInformersSynced); c != nil && c.Reason == v1alpha1.ReasonMissingRights {
		d.all = NoRights
	}
	if c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionNamespacesReady); c != nil && c.Reason == v1alpha1.ReasonServiceNamespaceRefused {
		d.namespaces = ". " + c.Message
	}
	reasons := []string{string(klutchsync.ReasonDenied), string(klutchsync.ReasonUnavailable)} // of a request that is not answered, nothing else is said
	if ready := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Severity == v1alpha1.SeverityError {
		reasons = append(reasons, ready.Reason)
	}
	c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionObjectsSynced)
	counted := func(reason string) bool { return c != nil && strings.Contains(c.Message, reason) }
	if d.all == "" && !slices.ContainsFunc(reasons, counted) {
		return d
	}
	for _, reason := range append(reasons, ReasonInStep) {
		list, err := events.Resource(corev1.SchemeGroupVersion.WithResource("events")).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason, Limit: page * mostPages})
		for i := 0; err == nil && i < len(list.Items); i++ {
			d.hear(&list.Items[i], b.Name)
		}
	}
	return d
}

// hear takes note of one Event: what is in the way, or the later word that it is over.
func (d denials) hear(u *unstructured.Unstructured, resource string) {
	var e corev1.Event
	if u.GetAnnotations()[v1alpha1.ResourceAnnotation] != resource || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &e) != nil || e.Source.Component != EventSource {
		return
	}
	about, at := subject{e.InvolvedObject.Namespace, e.InvolvedObject.UID}, e.LastTimestamp.Time
	switch before, known := d.of[about]; {
	case known && before.since.After(at):
	case e.Reason == ReasonInStep:
		delete(d.of, about)
	default:
		d.of[about] = denial{e.Reason, e.Message, at}
	}
}

// judge says why an object is not in step, if that can be seen on it, or was said of it.
func judge(m *metav1.PartialObjectMetadata, denied denials, now time.Time) (Object, bool) {
	o := Object{Namespace: m.Namespace, Name: m.Name, Message: m.Annotations[klutchsync.MessageAnnotation]}
	said, unwritten := denied.of[subject{m.Namespace, m.UID}]
	switch deleted := m.DeletionTimestamp; {
	case o.Message != "":
		o.Since = written(m)
		o.Reason, o.Message, _ = strings.Cut(o.Message, ": ")
	case unwritten:
		o.Since, o.Reason, o.Message = said.since, said.reason, said.message
	case deleted != nil && now.Sub(deleted.Time) > overdue:
		o.Since, o.Reason = deleted.Time, ReasonDeleting
		o.Message = "it waits for its finalizers: " + strings.Join(m.Finalizers, ", ")
	case deleted == nil && !slices.Contains(m.Finalizers, v1alpha1.SyncerFinalizer) && now.Sub(m.CreationTimestamp.Time) > overdue && !copied(m):
		o.Since, o.Reason, o.Message = m.CreationTimestamp.Time, ReasonNotTakenUp, "the konnector has not taken it up: it does not run, or the provider has no namespace for it"+denied.namespaces
		if denied.all != "" {
			o.Reason, o.Message = string(klutchsync.ReasonDenied), denied.all
		}
	}
	return o, o.Reason != ""
}

// EventSource is the component of the konnector's Events.
const EventSource = "konnector"

// NoRights is said of objects of a kind on which the konnector lacks rights. The admission policy
// of the konnector lets this text pass, since there it may not be known what it has bound.
const NoRights = "The konnector lacks rights on objects of this kind. Run kubectl bind repair: it writes them anew."

// copied objects are of another cluster, which says how they are.
func copied(m *metav1.PartialObjectMetadata) bool {
	_, is := klutchsync.OriginOf(m)
	return is
}

// written is when the message was set, as API servers keep account of it.
func written(m *metav1.PartialObjectMetadata) time.Time {
	for _, e := range m.ManagedFields {
		if e.Time != nil && e.FieldsV1 != nil && e.Subresource == "" && strings.Contains(e.FieldsV1.GetRawString(), `"f:`+klutchsync.MessageAnnotation+`"`) {
			return e.Time.Time
		}
	}
	return m.CreationTimestamp.Time
}

// ReleaseCommand is the command by which the owner of a binding releases all deletions that are held.
func ReleaseCommand(b *v1alpha1.APIServiceBinding) string {
	return fmt.Sprintf("kubectl -n %s annotate --overwrite apiservicebinding %s %s=\"$(date)\"", cmp.Or(b.Namespace, v1alpha1.Namespace), b.Name, klutchsync.ReleaseAnnotation)
}
