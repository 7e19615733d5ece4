// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"
)

// TestP27KeyRotation: a new session key leaves one record, which does not have it.
func TestP27KeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []string
		ctx := logr.NewContext(t.Context(), funcr.NewJSON(func(record string) { records = append(records, record) }, funcr.Options{Verbosity: 9}))
		k := &keyring{client: fake.NewClientset(), namespace: "n", life: time.Hour}
		for range 90 { // minutes
			if err := k.load(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		want := []string{`{"logger":"audit","level":0,"msg":"session keys rotated","keys":2}`}
		if diff := cmp.Diff(want, records); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
}
