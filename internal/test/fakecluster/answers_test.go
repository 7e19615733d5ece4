// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
)

// Each kind of the table of fates is among the answers, but for the kinds that no API server and
// no way to it gives; and each answer is of the kind that it says.
func TestEachFateIsAnAnswer(t *testing.T) {
	request := Request{Verb: "apply", Resource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, Object: cache.NewObjectName("a", "x")}
	given := []fates.Kind{fates.None, fates.Ended, fates.Superseded, fates.Terminal, fates.Unknown}
	for _, a := range Answers() {
		err := a.Err(request)
		if got := fates.Of(err); got != a.Kind {
			t.Errorf("%v is of kind %d, not %d", err, got, a.Kind)
		}
		given = append(given, a.Kind)
	}
	for kind := range fates.Kinds {
		if !slices.Contains(given, kind) {
			t.Errorf("no answer is of kind %d", kind)
		}
	}
}
