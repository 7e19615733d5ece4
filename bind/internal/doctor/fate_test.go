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
func TestFates(t *testing.T) {
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
		"no object":                       {fateOfClaim(meta(), nil, true), fateMade},
		"a lost object":                   {fateOfClaim(meta(message, "TargetLost: x has vanished"), nil, true), fateAnew},
		"our object":                      {fateOfClaim(meta(), target(origin, `{"uid":"source"}`), true), fateOurs},
		"that of another claim":           {fateOfClaim(wrote(meta(), "konnector", body), target(origin, `{"uid":"other"}`), true), fateOthers},
		"a held deletion":                 {fateOfClaim(going(meta(message, "DeletionsHeld: so many")), target(origin, `{"uid":"source"}`), true), fateHeld},
		"a deletion":                      {fateOfClaim(going(meta()), target(origin, `{"uid":"source"}`), true), fateOurs},
		"that of Klutch's konnector":      {fateOfClaim(meta(), target(bound, "true"), true), fateTaken},
		"adopted by it":                   {fateOfClaim(wrote(meta(), "konnector", body), target(), true), fateAdopted},
		"only held by it":                 {fateOfClaim(wrote(meta(), "konnector", finalizer), target(), true), fateOthers},
		"made by a person":                {fateOfClaim(wrote(meta(), "kubectl", body), target(), true), fateOthers},
		"adopted, and marked":             {fateOfClaim(wrote(marked.DeepCopy(), "konnector", body), target(), true), fateTaken},
		"marked, and nothing is taken up": {fateOfClaim(wrote(marked.DeepCopy(), "konnector", body), target(), false), fateAdopted},
		"an orphan":                       {fateOfObject(target(bound, "true", origin, `{"uid":"other"}`)), fateDeleted},
		"an orphan that is going":         {fateOfObject(going(target(bound, "true"))), ""},
		"left behind":                     {fateOfObject(target(klutchsync.OrphanedAnnotation, "{}")), fateReturned},
		"the provider's":                  {fateOfObject(target()), ""},
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
