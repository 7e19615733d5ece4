// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// What becomes of a claim and of an object goes by the marks of both konnectors, and by who made
// the claim: only what Klutch's konnector made is told as adopted by it.
func TestOutcomes(t *testing.T) {
	meta := func(annotations ...string) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "source", Annotations: map[string]string{}, Finalizers: []string{klutchsync.DefaultFinalizer}}}
		for i := 0; i < len(annotations); i += 2 {
			o.Annotations[annotations[i]] = annotations[i+1]
		}
		return o
	}
	target := func(annotations ...string) *metav1.PartialObjectMetadata {
		o := meta(annotations...)
		o.UID, o.Finalizers = "target", nil
		return o
	}
	going := func(o *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
		o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		return o
	}
	wrote := func(o *metav1.PartialObjectMetadata, manager, fields string) *metav1.PartialObjectMetadata {
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(fields)}}
		return o
	}
	marked := meta(klutchsync.TargetAnnotation, "target")
	marked.Labels = map[string]string{klutchsync.AdoptedLabel: "true"}
	const body, finalizer = `{"f:spec":{"f:size":{}}}`, `{"f:metadata":{"f:finalizers":{}}}`
	bound, message := v1alpha1.BoundAnnotation, klutchsync.MessageAnnotation
	origin := klutchsync.SourceAnnotation
	for name, c := range map[string]struct{ got, want string }{
		"no object":                       {outcomeOfClaim(meta(), nil, true), outcomeMade},
		"a lost object":                   {outcomeOfClaim(meta(message, "TargetLost: x has vanished"), nil, true), outcomeAnew},
		"our object":                      {outcomeOfClaim(meta(), target(origin, `{"uid":"source"}`), true), outcomeOurs},
		"that of another claim":           {outcomeOfClaim(wrote(meta(), "konnector", body), target(origin, `{"uid":"other"}`), true), outcomeOthers},
		"a held deletion":                 {outcomeOfClaim(going(meta(message, "DeletionsHeld: so many")), target(origin, `{"uid":"source"}`), true), outcomeHeld},
		"a deletion":                      {outcomeOfClaim(going(meta()), target(origin, `{"uid":"source"}`), true), outcomeOurs},
		"that of Klutch's konnector":      {outcomeOfClaim(meta(), target(bound, "true"), true), outcomeTaken},
		"adopted by it":                   {outcomeOfClaim(wrote(meta(), "konnector", body), target(), true), outcomeUnmarked},
		"only held by it":                 {outcomeOfClaim(wrote(meta(), "konnector", finalizer), target(), true), outcomeOthers},
		"made by a person":                {outcomeOfClaim(wrote(meta(), "kubectl", body), target(), true), outcomeOthers},
		"adopted, and marked":             {outcomeOfClaim(wrote(marked.DeepCopy(), "konnector", body), target(), true), outcomeTaken},
		"marked, and nothing is taken up": {outcomeOfClaim(wrote(marked.DeepCopy(), "konnector", body), target(), false), outcomeUnmarked},
		"an orphan":                       {outcomeOfObject(target(bound, "true", origin, `{"uid":"other"}`)), outcomeDeleted},
		"an orphan that is going":         {outcomeOfObject(going(target(bound, "true"))), ""},
		"left behind":                     {outcomeOfObject(target(klutchsync.OrphanedAnnotation, "{}")), outcomeReturned},
		"the provider's":                  {outcomeOfObject(target()), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

// A platform chooses the names and UIDs that people paste into a shell.
func TestListed(t *testing.T) {
	got := listed("ADOPTED", []string{"widgets.example.org/team/b/1-2", "widgets.example.org/team/a/$(id)", "widgets.example.org/team/a/`id`", `widgets.example.org/team/a/";id"`, "widgets.example.org/team/a 3"})
	if want := `ADOPTED="widgets.example.org/team/b/1-2".`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
