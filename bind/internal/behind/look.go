// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Look reads what is written on the objects of a resource, metadata only and page by page.
func Look(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource, now time.Time) (Objects, error) {
	var found Objects
	opts := metav1.ListOptions{Limit: page}
	for range mostPages {
		list, err := client.Resource(resource).List(ctx, opts)
		if err != nil {
			return found, err
		}
		for i := range list.Items {
			if o, ok := judge(&list.Items[i], now); ok {
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

// judge says why an object is not in step, if that can be seen on it.
func judge(m *metav1.PartialObjectMetadata, now time.Time) (Object, bool) {
	o := Object{Namespace: m.Namespace, Name: m.Name, Message: m.Annotations[klutchsync.MessageAnnotation]}
	switch deleted := m.DeletionTimestamp; {
	case o.Message != "":
		o.Since = written(m)
		o.Reason, o.Message, _ = strings.Cut(o.Message, ": ")
	case deleted != nil && now.Sub(deleted.Time) > overdue:
		o.Since, o.Reason = deleted.Time, ReasonDeleting
		o.Message = "it waits for its finalizers: " + strings.Join(m.Finalizers, ", ")
	case deleted == nil && !slices.Contains(m.Finalizers, v1alpha1.SyncerFinalizer) && now.Sub(m.CreationTimestamp.Time) > overdue && !copied(m):
		o.Since, o.Reason, o.Message = m.CreationTimestamp.Time, ReasonNotTakenUp, "the konnector has not taken it up: it does not run, or the provider has no namespace for it"
	}
	return o, o.Reason != ""
}

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
