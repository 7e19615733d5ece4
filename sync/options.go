// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/related"
)

// DefaultFinalizer is the finalizer of Klutch's own syncers.
const DefaultFinalizer = names.Klutch + "/syncer"

// Options tune a Sync. The zero value mirrors the resource under the same names
// and with the default policies.
type Options struct {
	// Binding tells this pair of clusters and resource apart from every other
	// one that writes to the same target. It is part of the field managers, so
	// it must stay the same over restarts: under another name a Sync takes over the
	// targets whose sources are there, but neither orphans nor copies of related
	// objects. Empty means the resource's name.
	Binding string

	// Domain begins the annotations, the label and the field managers that the Sync
	// writes, and its finalizer unless that is given: "example.org". The constants of
	// this package, such as MessageAnnotation, and OriginOf go for the default. It
	// must stay the same over restarts, too. Empty means klutch.anynines.com.
	Domain string

	// Mapper names the targets. Nil means Identity.
	Mapper Mapper

	// TargetScope limits what is watched on the target. Empty means All.
	TargetScope Scope

	// RelatedAccess, if not nil, limits where related objects are watched on the
	// source, for credentials that may see those of some namespaces only. It is called
	// with wanted for a namespace in which bound objects are met, and without it minutes
	// after the last of them and of the copies has gone; also for namespaces that the
	// mapper knew before bound objects were met there. It reports whether
	// related objects may be read there. After an error it is called again, ever more
	// rarely, while there are bound objects, or may be copies. Related objects of
	// namespaces without access wait; all else goes on: see Status. Nil is access to all.
	// The bound objects are watched everywhere.
	RelatedAccess func(ctx context.Context, namespace string, wanted bool) (bool, error)

	// Workers is the number of objects worked on at once. 0 means 32: the work
	// is waiting for API servers.
	Workers int

	// Finalizer goes on each source object before its target exists. Empty
	// means "syncer" of the Domain: DefaultFinalizer. Two Syncs of the same source
	// resource need two: the one whose finalizer comes first on an object writes its status
	// and messages, and the other one reports by Hooks with ReasonShared.
	Finalizer string

	// The policies say what to do when another writer changes or deletes an object, and what a
	// deletion takes with it; the zero
	// value of each is its first constant.
	Conflict ConflictPolicy
	Drift    DriftPolicy
	Lost     LostPolicy
	Deletion DeletionPolicy
	Orphans  OrphanPolicy

	// DeletionLimit is how many targets may be deleted within five minutes. When
	// there are more, all further deletions are held until Release, and likewise
	// when the resource itself or a whole cluster is taken away; or until the
	// ReleaseAnnotation on the object has the word that its message spells. 0 means one in twenty, but at least ten; a
	// negative limit is none. Targets that vanished and are made anew count too.
	DeletionLimit int

	// FormerSource is the source cluster in whose place this one is: it is gone for good,
	// and its owner has agreed that its targets become those of the sources of the same
	// namespace and name here, whatever Conflict says. Those without a source are reported
	// as orphans and never deleted. Only targets that name this cluster as their origin
	// are taken over. Empty is none.
	FormerSource types.UID

	// Adopt takes over a target that the target's side made, if a source names it: its
	// TargetAnnotation has the target's UID, and its AdoptedLabel is "true". NewAdopted
	// makes such a source, Hooks.Unclaimed says for what. What one side made is not the
	// other's to end: such a target stays when its source is deleted, as under
	// DeletionOrphan, and is not made anew when it vanishes, as under LostReport. Without
	// the label the source is one like any other.
	Adopt bool

	// DeletionLog keeps over restarts what DeletionLimit has counted.
	DeletionLog DeletionLog

	// Offered, if not nil, is asked before a target that has vanished is made anew. It
	// answers why the target's side does not offer the resource any more; empty if it does.
	Offered func(ctx context.Context) (why string, err error)

	// Labels and Annotations choose by key what travels to the target. Nil
	// means all. Keys of other tools that track their objects by metadata, and
	// the engine's own, never travel.
	Labels, Annotations func(key string) bool

	// TargetMeta, if not nil, adds metadata to each target.
	TargetMeta func(source cache.ObjectName) Meta

	// Related objects travel with the bound ones.
	Related []Related

	// RelatedMapper, if not nil, is for cluster-scoped sources, which have no namespace: while
	// there is any, related objects travel in each namespace of this table. References select
	// none there. It is never asked for a namespace that it does not have.
	RelatedMapper *Namespaces

	// Hooks are called as things happen.
	Hooks Hooks
}

// A DeletionLog is where an embedding program keeps what was deleted of late, so that a
// mass deletion is one although the program is restarted under it. The zero value keeps
// nothing.
type DeletionLog struct {
	// Text is what Save was last called with; empty if it never was.
	Text string
	// Save is called before deletions, for many at once where they are many, one call at a
	// time. Until it returns nil they wait.
	Save func(ctx context.Context, text string) error
}

// Meta is metadata that a Sync writes on a target on top of what travels.
type Meta struct {
	Labels          map[string]string
	Annotations     map[string]string
	OwnerReferences []metav1.OwnerReference
}

// A Scope says where objects are watched.
type Scope string

const (
	// ScopeAll is one watch for the whole cluster.
	ScopeAll Scope = "All"
	// ScopeMapped is one watch for each namespace that the mapper knows, which has
	// to be a *Namespaces: for credentials that may see no more.
	ScopeMapped Scope = "Mapped"
)

// A ConflictPolicy says what becomes of a target's name that is already taken
// by an object that no Sync made.
type ConflictPolicy string

// Conflict policies.
const (
	ConflictFail  ConflictPolicy = "Fail"  // leave it alone and report
	ConflictAdopt ConflictPolicy = "Adopt" // take it over, with the source's content
)

// A DriftPolicy says what happens when someone else changed on the target what
// the source owns.
type DriftPolicy string

// Drift policies.
const (
	DriftCorrect DriftPolicy = "Correct" // apply the source again
	DriftReport  DriftPolicy = "Report"  // leave it and report
)

// A LostPolicy says what happens when a target vanished while its source lives.
type LostPolicy string

// Lost policies.
const (
	LostRecreate LostPolicy = "Recreate" // create it anew
	LostReport   LostPolicy = "Report"   // report; see TargetAnnotation
)

// A DeletionPolicy says what happens to the target of a deleted source.
type DeletionPolicy string

// Deletion policies.
const (
	DeletionDelete DeletionPolicy = "Delete" // delete it and wait until it has gone
	DeletionOrphan DeletionPolicy = "Orphan" // let it go: it stays
)

// An OrphanPolicy says what happens to a target whose source vanished without
// letting it go: its finalizer was taken off by force, or its cluster was restored
// from a backup.
type OrphanPolicy string

// Orphan policies.
const (
	// OrphanReport leaves it and reports: see ReasonOrphaned and Status. A target whose source
	// a watch has shown to end with the finalizer on it is deleted all the same.
	OrphanReport OrphanPolicy = "Report"
	OrphanDelete OrphanPolicy = "Delete" // delete it, as DeletionLimit allows
)

// Related selects objects of another resource that travel with the bound ones,
// from the side that owns them to the same name in the mapped namespace of the
// other side. An object travels if its name is in Names or is referred to by a
// bound object of its namespace, its source side namespace is in Namespaces, and
// its labels are those of Labels. Several Related of one resource select what any
// of them does.
//
// Whatever selects it, a related object travels only while its source side namespace
// holds a source of the Sync; one that is being deleted counts until it has gone.
// Copies go with the last source of their namespace. Where the sources are cluster-scoped,
// nothing travels without RelatedMapper of Options.
//
// The owner's side is never written to. A copy carries annotations that identify
// its original; the content of an object without them is never read, nor is it
// overwritten or deleted. Copies do not travel back to where they came from.
// What is annotated with the name of a service account never travels.
//
// A copy has the content of its original, and of its labels and annotations those that
// KeepLabels and KeepAnnotations name: the others may be switches of controllers that run
// on one side only.
type Related struct {
	// Resource of the objects: v1 secrets, for example. It must be namespaced.
	Resource schema.GroupVersionResource

	// From is the side that owns the objects.
	From Side

	// Names of objects that travel; "*" stands for all. Empty selects by
	// References alone or, without those, all.
	Names []string

	// Namespaces on the source side in which objects travel. Empty or "*"
	// means all that the mapper knows.
	Namespaces []string

	// Except are namespaces on the source side in which nothing travels, unless
	// Namespaces has their very name: "*" does not name them. An asterisk at the end
	// stands for any ending: "kube-*".
	Except []string

	// Labels is a label selector in the syntax of kubectl: "app=db,tier!=test".
	// Empty means any labels.
	Labels string

	// References are paths to fields of the bound object that hold the name of
	// an object in the same namespace: status.managed.secret.name. They are
	// read on the side that owns the related object.
	References []string

	// KeepLabels and KeepAnnotations are the keys that travel; a "*" at the end stands
	// for any text. Empty means none. Keys that Labels and Annotations of Options
	// could not let pass do not travel here either. If several Related have one
	// resource, the keys of all of them travel with each of its objects.
	KeepLabels, KeepAnnotations []string

	// SecretTypes are the types of Secrets that travel; a "*" at the end stands for
	// any text. Empty means [DefaultSecretTypes]. A Secret of another type stays
	// where it is, and the claims that refer to it are told. A copy of what it was
	// before goes, and past DeletionLimit it waits for [Sync.Release]. Of several Related of
	// one resource each lets its types pass.
	SecretTypes []string
}

// DefaultSecretTypes are those of Secrets that hold the credentials of people's
// programs. Not among them are Secrets by which clusters and their tools work, such as
// the tokens of service accounts and of new nodes, and the releases of Helm.
func DefaultSecretTypes() []string {
	return []string{
		string(corev1.SecretTypeOpaque), string(corev1.SecretTypeTLS), string(corev1.SecretTypeDockerConfigJson), string(corev1.SecretTypeDockercfg),
		string(corev1.SecretTypeBasicAuth), string(corev1.SecretTypeSSHAuth), "connection.crossplane.io/*",
	}
}

// An OptionError is an argument of New that cannot work.
type OptionError struct {
	Option string // name of the argument or of the field of Options
	Reason string
}

// Error implements error.
func (e *OptionError) Error() string { return fmt.Sprintf("sync: %s %s", e.Option, e.Reason) }

func (o Options) withDefaults(resource schema.GroupVersionResource) Options {
	o.Binding = cmp.Or(o.Binding, resource.GroupResource().String())
	o.Domain = cmp.Or(o.Domain, names.Klutch)
	if o.Mapper == nil {
		o.Mapper = Identity()
	}
	if o.Workers <= 0 {
		o.Workers = 32
	}
	o.TargetScope = cmp.Or(o.TargetScope, ScopeAll)
	o.Finalizer = cmp.Or(o.Finalizer, o.Domain+"/syncer")
	o.Conflict = cmp.Or(o.Conflict, ConflictFail)
	o.Drift = cmp.Or(o.Drift, DriftCorrect)
	o.Lost = cmp.Or(o.Lost, LostRecreate)
	o.Deletion = cmp.Or(o.Deletion, DeletionDelete)
	o.Orphans = cmp.Or(o.Orphans, OrphanReport)
	return o
}

// maxDomain leaves room for bindings in names of field managers.
const maxDomain = 60

// validate checks options that withDefaults has completed.
func (o Options) validate() error {
	table, isTable := o.Mapper.(*Namespaces)
	for _, c := range []struct {
		bad            bool
		option, reason string
	}{
		{strings.ContainsFunc(o.Binding, func(r rune) bool { return !unicode.IsPrint(r) }), "Binding", "has characters that cannot be printed"},
		{len(o.Domain) > maxDomain || len(validation.IsDNS1123Subdomain(o.Domain)) > 0, "Domain", "is not of the form example.org, in at most 60 characters"},
		{isTable && table == nil, "Mapper", "is a nil table"},
		{len(validation.IsQualifiedName(o.Finalizer)) > 0 || !strings.Contains(o.Finalizer, "/"), "Finalizer", "is not of the form example.org/name"},
		{!oneOf(o.TargetScope, ScopeAll, ScopeMapped), "TargetScope", "is neither All nor Mapped"},
		{!oneOf(o.Conflict, ConflictFail, ConflictAdopt), "Conflict", "is neither Fail nor Adopt"},
		{!oneOf(o.Drift, DriftCorrect, DriftReport), "Drift", "is neither Correct nor Report"},
		{!oneOf(o.Lost, LostRecreate, LostReport), "Lost", "is neither Recreate nor Report"},
		{!oneOf(o.Deletion, DeletionDelete, DeletionOrphan), "Deletion", "is neither Delete nor Orphan"},
		{!oneOf(o.Orphans, OrphanReport, OrphanDelete), "Orphans", "is neither Report nor Delete"},
		{o.Orphans == OrphanDelete && o.Deletion == DeletionOrphan, "Orphans", "Delete does not go with Deletion: Orphan"},
		{o.TargetScope == ScopeMapped && !isTable, "TargetScope", "Mapped needs a mapper of namespaces"},
	} {
		if c.bad {
			return &OptionError{c.option, c.reason}
		}
	}
	for i, r := range o.Related {
		if err := r.validate(i); err != nil {
			return err
		}
	}
	return nil
}

func (r Related) validate(i int) error {
	field := fmt.Sprintf("Related[%d]", i)
	switch {
	case r.Resource.Resource == "" || r.Resource.Version == "":
		return &OptionError{field + ".Resource", "needs a resource and a version"}
	case !oneOf(r.From, SourceSide, TargetSide):
		return &OptionError{field + ".From", "is neither Source nor Target"}
	}
	if _, err := labels.Parse(r.Labels); err != nil {
		return &OptionError{field + ".Labels", "is no label selector: " + err.Error()}
	}
	for _, ref := range r.References {
		if _, err := related.Path(ref); err != nil {
			return &OptionError{field + ".References", err.Error()}
		}
	}
	return nil
}

// travels reports whether related objects of a namespace may travel at all.
func (o Options) travels(namespace string) bool {
	return slices.ContainsFunc(o.Related, func(r Related) bool { return related.Allows(r.Namespaces, namespace) })
}

// hasLegacy reports whether this Sync goes on where a legacy konnector may have begun.
func (o Options) hasLegacy() bool {
	return o.Finalizer == DefaultFinalizer && o.Domain == names.Klutch
}

// relatedMapper maps related objects.
func (o Options) relatedMapper() Mapper {
	if o.RelatedMapper != nil {
		return o.RelatedMapper
	}
	return o.Mapper
}

// kept are the top-level fields of targets that have to be cached.
func (o Options) kept() map[string]bool {
	keep := map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true}
	for _, r := range o.Related {
		for _, path := range r.References {
			if fields, err := related.Path(path); err == nil && r.From == TargetSide {
				keep[fields[0]] = true
			}
		}
	}
	return keep
}

func oneOf[T comparable](v T, of ...T) bool { return slices.Contains(of, v) }
