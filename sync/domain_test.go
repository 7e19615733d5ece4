// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Sync with a domain of its own leaves no name of Klutch's on any object, and finds what
// it wrote again. Beside it one with Klutch's shares its clusters and watches.
func TestDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		options := func(domain, namespace string) Options {
			table := NewNamespaces(nil)
			table.Set(w.sourceNS, namespace)
			w.namespace(w.target, namespace)
			return Options{
				Domain: domain, Mapper: table, Lost: LostReport, Deletion: DeletionOrphan,
				Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}},
			}
		}
		own := options("example.net", "own")
		w.secret(w.target, "own", "creds", "cGFzcw==")
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, `"annotations":{"example.net/own":"stays","team":"red"}`))
		target := func(namespace string) *unstructured.Unstructured { return w.get(w.target, namespace, "a") }
		for range 2 { // the second time it goes on where it ended
			stop := w.run(own)
			w.until("the target is there", func() bool { return target("own") != nil })
			w.merge(w.target, "own", "a", `{"status":{"secret":"creds"}}`, "status")
			w.until("the copy is there", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") != nil })
			w.settle()
			stop()
			for _, u := range []*unstructured.Unstructured{w.get(w.source, w.sourceNS, "a"), target("own"), w.getSecret(w.source, w.sourceNS, "creds")} {
				if text, err := json.Marshal(u); err != nil || strings.Contains(string(text), "klutch") || !strings.Contains(string(text), "example.net/") {
					t.Errorf("names on an object: %s, %v", text, err)
				}
			}
		}
		if a := target("own").GetAnnotations(); a["team"] != "red" || a["example.net/own"] != "" {
			t.Errorf("annotations %v", a)
		}
		defer w.run(options("", "klutch"))()
		defer w.run(own)()
		w.until("the Sync beside it makes its own", func() bool { u := target("klutch"); return u != nil && u.GetAnnotations()[SourceAnnotation] != "" })
		w.delete(w.source, w.sourceNS, "a")
		w.until("the source is gone", func() bool { return w.get(w.source, w.sourceNS, "a") == nil })
		if a := target("own").GetAnnotations(); a["example.net/orphaned-from"] == "" || a[OrphanedAnnotation] != "" {
			t.Errorf("annotations of an orphan: %v", a)
		}
	})
}
