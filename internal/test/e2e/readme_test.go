// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/internal/test/stack"
)

var atRest = flag.Duration("rest", 5*time.Second, "how long nothing may be written beside an example's claims at rest")

// TestCatalogExample runs the commands of examples/catalog/README.md beside the automation,
// and looks at what each one promises.
func TestCatalogExample(t *testing.T) {
	const folder = "../../../examples/catalog"
	f := features.New("the catalogue's README").
		Assess("its commands", step("catalogue", func(w world) {
			w.readme(folder, "go run ./cmd/automation ", func(line string) { // it runs, with these flags
				for _, flag := range strings.Fields(line)[3:] {
					if strings.HasPrefix(flag, "-") && !slices.Contains(w.s.Automation.Args, flag) {
						w.Errorf("the automation runs without %s: %q", flag, w.s.Automation.Args)
					}
				}
			})
			if n := w.readme(folder, "kubectl ", nil); n != 5 {
				w.Errorf("%d commands were run, want two offers, a bind, an apply and a get", n)
			}
			w.noOther(folder, "go run ./cmd/automation ", "kubectl ", "for ", "sed ", "go test . -") // the last three are for TestOnCluster of the folder
			w.awaitState(gvr("restores"), "orders-undo-migration", "Completed")
			w.await(w.app(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "orders-api"), stack.There)
			w.silent(instances, bindings, gvr("backups"), gvr("restores"), secrets, configMaps)
			for _, u := range catalog.Claims() {
				w.remove(w.app(gvr(strings.ToLower(u.GetKind())+"s"), u.GetName()))
			}
			w.await(w.app(instances, "orders"), stack.Gone)
		})).
		Feature()
	testenv.Test(t, f)
}

func gvr(plural string) schema.GroupVersionResource {
	return instances.GroupVersion().WithResource(plural)
}

func (w world) reader(folder string) stack.Reader {
	return stack.Reader{Stack: w.s, Folder: folder, Namespace: w.namespace}
}

// readme runs the commands of a README that begin so, by do or as kubectl would, and counts them.
func (w world) readme(folder, prefix string, do func(line string)) (ran int) {
	w.Helper()
	lines, err := w.reader(folder).Commands()
	for _, line := range lines {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		if ran++; do != nil {
			do(line)
		} else if err == nil {
			err = w.reader(folder).Type(w.ctx, line)
		}
	}
	if err != nil {
		w.Fatal(err)
	}
	return ran
}

// noOther fails the test if a command of a README begins in none of these ways: nothing would run it.
func (w world) noOther(folder string, beginnings ...string) {
	w.Helper()
	lines, err := w.reader(folder).Commands()
	for _, line := range lines {
		if !slices.ContainsFunc(beginnings, func(begin string) bool { return strings.HasPrefix(line, begin) }) {
			w.Errorf("no test runs %q", line)
		}
	}
	if err != nil {
		w.Error(err)
	}
}

// silent fails the test if an object of the world's namespace is written on either side
// while nobody wants anything.
func (w world) silent(resources ...schema.GroupVersionResource) {
	w.Helper()
	written, err := w.reader("").Silent(w.ctx, *atRest, resources...)
	if err != nil || len(written) > 0 {
		w.Errorf("written at rest: %q, %v", written, err)
	}
}
