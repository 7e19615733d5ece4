// SPDX-License-Identifier: Apache-2.0

package related

import (
	"cmp"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/refusal"
)

// A Config is what a Copier needs of the Sync that it belongs to.
type Config struct {
	Resource   schema.GroupVersionResource
	FromTarget bool   // the target side owns the originals, not the source side
	Manager    string // field manager of the copies; it ends in [Managers]
	Marks      Marks
	Former     types.UID // of the cluster in whose place that of the originals is; empty if none

	Originals, Copies Side
	Bound             Bound
	Sources           Sources
	Names             Names
	Engine            Engine
	Refused           *refusal.Ledger // of copies, by their originals
	NewPace           func() Pace
}

// Managers ends the field managers of copies, of whatever Sync.
const Managers = "/related"

// Marks are the annotations of a copy; that of Bound is a label too.
type Marks struct {
	Bound, Source, Owner, Referrer string
	Adopted                        string                // label of a source that the target's side wrote
	Own                            func(key string) bool // it is one that a Sync writes
}

// A Side is the objects of the resource on one side, by their watch and live.
type Side struct {
	// Get is what the watch has seen, and as of which version; known is false if that
	// cannot be told.
	Get      func(name cache.ObjectName) (obj metav1.Object, version string, known bool)
	Metadata metadata.Getter
	Objects  dynamic.NamespaceableResourceInterface
}

// Bound is the synced objects of the owner's side.
type Bound interface {
	// Known reports whether those of both sides are.
	Known() bool
	// Leaving reports whether a target in the namespace of an original is still there although its
	// source is being deleted: a target that refers to the original, or any target if all is set.
	Leaving(original cache.ObjectName, all bool) bool
	// Referrers are those that refer to an original, and Live reads one.
	Referrers(original cache.ObjectName) []metav1.Object
	Live(ctx context.Context, referrer cache.ObjectName) (*unstructured.Unstructured, error)
	// MadeFrom reports whether a target was made from the source with a UID.
	MadeFrom(target *unstructured.Unstructured, source types.UID) bool
}

// Sources is the synced objects of the source side.
type Sources interface { //nolint:interfacebloat // one user and one implementation: a list of what a Copier needs
	// In reports whether there is one in a namespace; Deserted, live, that there is none, and
	// Ending, live, that the namespace is being deleted under them.
	In(namespace string) bool
	Deserted(ctx context.Context, namespace string) (bool, error)
	Ending(ctx context.Context, namespace string) (bool, error)
	// Leaving looks live for one in a namespace, or of a name, that is being deleted and whose target has not gone.
	Leaving(ctx context.Context, name cache.ObjectName) (bool, error)
	Get(name cache.ObjectName) (obj metav1.Object, known bool)
	Live(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error)
}

// Names maps names, and says who is whose.
type Names interface {
	Copy(original cache.ObjectName) (cache.ObjectName, bool)
	// Source is where the source of a name on the target side is.
	Source(target cache.ObjectName) (cache.ObjectName, bool)
	// Clusters are the UIDs of those of the originals and of the copies; empty if unknown.
	Clusters() (owner, other types.UID)
	// Origin is what a copy, or a target, was made from, and Record how a copy says so.
	Origin(obj metav1.Object) (Origin, bool)
	Record(from Origin) string
}

// Engine is what a Copier has the engine do.
type Engine interface { //nolint:interfacebloat // one user and one implementation: a list of what a Copier needs
	// Confirm makes sure that the clusters are those that are known.
	Confirm(ctx context.Context) error
	// Merge patches the metadata of an object.
	Merge(ctx context.Context, client dynamic.ResourceInterface, name string, metadata map[string]any) error
	// TakeAway takes parts of an object away from all managers that own them.
	TakeAway(ctx context.Context, client dynamic.ResourceInterface, seen *unstructured.Unstructured, pointers []string) (*unstructured.Unstructured, error)
	// Tell has a source say a problem, or not any more if text is empty.
	Tell(source cache.ObjectName, id, text string)
	// Hold says why the copy of an original that is gone, or of another type, has to stay; empty if it may go. It
	// counts the copies that go and are not free, by the UID of the copy, so that too many at once wait.
	// Blocks says the same and counts nothing, and Forget follows one that has its original again, or has gone.
	Hold(ctx context.Context, original cache.ObjectName, uid types.UID, free bool) (why string, err error)
	Blocks(original cache.ObjectName) (why string)
	Forget(original cache.ObjectName)
	// Denied follows an answer that access to a namespace of the source side is forbidden.
	Denied(namespace string)
	// Notify follows a change of what Left says.
	Notify()
	Hooks
}

// Hooks tell the embedding program what happened.
type Hooks interface {
	Wrote(ctx context.Context, step Step, object cache.ObjectName, began time.Time, err error)
	Refused(ctx context.Context, original cache.ObjectName, why string)
}

// A Pace spaces out the copies of one object.
type Pace interface {
	Wait() time.Duration         // until the next copy may be written
	Count()                      // one was begun
	Spend(object map[string]any) // and written
	Rest() time.Duration         // until none counts any more
}

// An Origin is what a copy or target was made from.
type Origin struct {
	UID, Cluster types.UID
	Name         cache.ObjectName
}

// since is o with the cluster that a copy of it records, if that may not be read now.
func (o Origin) since(made Origin) Origin {
	if made.UID == o.UID {
		o.Cluster = cmp.Or(o.Cluster, made.Cluster)
	}
	return o
}

// sameSlot reports whether o was made from what is called from, in whatever incarnation.
func (o Origin) sameSlot(from Origin) bool { return o.sameName(from) && o.sameCluster(from) }

func (o Origin) sameName(from Origin) bool { return o.UID != "" && o.Name == from.Name }

func (o Origin) sameCluster(from Origin) bool {
	return o.Cluster == "" || from.Cluster == "" || o.Cluster == from.Cluster
}

// metadata and read read an object live; nil if there is none.
func (s Side) metadata(ctx context.Context, name cache.ObjectName) (*metav1.PartialObjectMetadata, error) {
	return live(s.Metadata.Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}))
}

func (s Side) read(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
	return live(s.Objects.Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}))
}

func live[T any](obj *T, err error) (*T, error) {
	switch {
	case err == nil:
		return obj, nil
	case absent(err):
		return nil, nil //nolint:nilnil // no object is an answer
	default:
		return nil, err
	}
}

// absent reports whether err says that an object is not there, rather than that its
// resource is not served.
func absent(err error) bool { return fates.Is(err, fates.Absent) }
