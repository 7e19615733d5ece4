// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/stack"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// TestKonnectorCrash kills the konnector in the midst of its work, twice.
func TestKonnectorCrash(t *testing.T) {
	const ns, n = "crash", 40
	f := features.New("a konnector that crashes loses nothing").
		Assess("killed while it creates", step(ns, func(w world) {
			for i := range n {
				w.apply(w.s.App, instance(ns, fmt.Sprintf("db-%d", i), "postgresql-single-nano"))
				if i == n/2 {
					w.must(w.s.Konnector.Kill())
				}
			}
			w.missed("doctor", "it has not renewed its Lease for")
			w.missed("status", "it has not renewed its Lease for")
			w.must(w.s.Konnector.Start(w.ctx))
			for i := range n {
				w.awaitState(instances, fmt.Sprintf("db-%d", i), "Running")
			}
		})).
		Assess("a restart changes nothing", step(ns, func(w world) {
			before := w.versions()
			w.must(w.s.Konnector.Stop())
			w.missed("doctor", "was stopped")
			w.missed("status", "was stopped")
			w.must(w.s.Konnector.Start(w.ctx))
			w.apply(w.s.App, instance(ns, "later", "postgresql-single-nano"))
			w.awaitState(instances, "later", "Running")
			for name, version := range w.versions() {
				if old, ok := before[name]; ok && old != version {
					w.Errorf("%s was written: %s, %s before", name, version, old)
				}
			}
		})).
		Assess("killed while it deletes", step(ns, func(w world) {
			for i := range n {
				w.remove(w.app(instances, fmt.Sprintf("db-%d", i)))
				if i == n/2 {
					w.must(w.s.Konnector.Kill())
				}
			}
			w.must(w.s.Konnector.Start(w.ctx))
			w.release("those that are held")
			for i := range n {
				name := fmt.Sprintf("db-%d", i)
				w.releaseOne(w.app(instances, name))
				if _, err := w.mirror(instances, name).Get(w.ctx); err == nil {
					w.Errorf("claim %s is gone before its instance", name)
				}
			}
			w.patchRelease("all that came since")
		})).
		Feature()
	testenv.Test(t, f)
}

// missed waits until a command says that the konnector does not work, why, and how to go on.
func (w world) missed(command, why string) {
	w.Helper()
	var out stack.Output
	err := wait.PollUntilContextTimeout(w.ctx, time.Second, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		out = w.s.Kubectl(ctx, nil, command)
		return out.Code == exitTimeout && strings.Contains(out.Stdout+out.Stderr, why) && strings.Contains(out.Stderr, "get pods"), nil
	})
	if err != nil {
		w.Errorf("%s ends with %d, %v:\n%s%s", command, out.Code, err, out.Stdout, out.Stderr)
	}
}

// release waits until so many deletions are held, and says that they are meant.
func (w world) release(word string) {
	w.Helper()
	w.await(w.binding(services[0]), mentions("DeletionsHeld", "apiservicebinding "+services[0]))
	w.patchRelease(word)
}

// patchRelease lets pass what is held, and has deletions be counted anew, which would hold those of other tests.
func (w world) patchRelease(word string) {
	w.Helper()
	for _, name := range services[:2] {
		w.must(w.patch(w.binding(name), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, klutchsync.ReleaseAnnotation, word)))
	}
}

// releaseOne waits until a claim is gone. Deletions that arrive after a release are
// counted anew, so that it may have to be released by itself.
func (w world) releaseOne(claim stack.Object) {
	w.Helper()
	held := mentions("DeletionsHeld")
	u := w.await(claim, func(u *unstructured.Unstructured) bool { return u == nil || held(u) })
	if u != nil {
		_, word, _ := strings.Cut(u.GetAnnotations()[klutchsync.MessageAnnotation], klutchsync.ReleaseAnnotation+"=")
		err := w.patch(claim, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, klutchsync.ReleaseAnnotation, word))
		if err != nil && !apierrors.IsNotFound(err) {
			w.Fatal(err)
		}
	}
	w.await(claim, stack.Gone)
}

// TestBackendCrash: what is bound works on without a backend, and a backend that
// comes back serves the next login.
func TestBackendCrash(t *testing.T) {
	const ns = "backend-crash"
	f := features.New("a backend that crashes").
		Assess("bound APIs work on", step(ns, func(w world) {
			w.apply(w.s.App, instance(ns, "before", "postgresql-single-nano"))
			w.awaitState(instances, "before", "Running")
			w.must(w.s.Backend.Kill())
			w.apply(w.s.App, instance(ns, "during", "postgresql-single-nano"))
			w.awaitState(instances, "during", "Running")
		})).
		Assess("and it comes back", step(ns, func(w world) {
			w.must(w.s.Backend.Start(w.ctx))
			w.said(w.s.Bind(w.ctx, stack.Developer, serviceFlags(services[:1])...), exitOK)
			enter(w.ctx, w.T, "after-backend-crash").newcomer()
		})).
		Feature()
	testenv.Test(t, f)
}

// newcomer needs a service namespace that is not there yet.
func (w world) newcomer() {
	w.Helper()
	w.apply(w.s.App, instance(w.namespace, "new", "postgresql-single-nano"))
	w.awaitState(instances, "new", "Running")
}

func (w world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// versions are the resource versions of the world's instances on both sides.
func (w world) versions() map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, o := range []stack.Object{w.app(instances, ""), w.mirror(instances, "")} {
		c, err := o.Client()
		w.must(err)
		list, err := c.List(w.ctx, metav1.ListOptions{})
		w.must(err)
		for _, u := range list.Items {
			all[u.GetNamespace()+"/"+u.GetName()] = u.GetResourceVersion()
		}
	}
	return all
}
