// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

// A Control Plane Cluster that is restored from before the Secrets were made takes no
// credentials from the App Cluster; those that are made anew travel, and so does what a
// person releases go.
func TestRealRestoreBeforeSecrets(t *testing.T) {
	t.Parallel()
	const n = 30
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	w := &world{TB: t, source: source, target: target, sourceNS: "default", targetNS: "default"}
	w.from, w.to = w.cluster(app), w.cluster(control)
	log := ""
	s, stop := w.sync(Options{
		Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}},
		DeletionLog: DeletionLog{Save: func(_ context.Context, text string) error {
			log = text
			return nil
		}},
	})
	defer func() { stop(); t.Logf("kept: %s", log) }()
	name := func(i int) string { return fmt.Sprintf("w%d", i) }
	for i := range n {
		w.create(source, "default", w.widget(name(i), `{"size":"small"}`, ``))
	}
	for i := range n {
		w.until("target exists", func() bool { return w.targetOf(name(i)) != nil })
	}
	backup := filepath.Join(tempdir.ForTest(t, "backup"), "backup")
	if err := control.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		w.secret(target, "default", name(i), "cGFzcw==")
		w.merge(target, "default", name(i), `{"status":{"secret":"`+name(i)+`"}}`, "status")
	}
	left := func() (left int) {
		for i := range n {
			if w.getSecret(source, "default", name(i)) != nil {
				left++
			}
		}
		return left
	}
	w.until("all credentials are there", func() bool { return left() == n })
	if err := control.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	w.until("too many are noticed", func() bool { return s.Status().HeldCopies > 0 })
	w.until("all that may go is gone", func() bool { return s.Status().HeldCopies == left() })
	time.Sleep(2 * time.Second) // in which the others went
	if got := left(); got < n-10 || got != s.Status().HeldCopies {
		t.Errorf("%d of %d credentials are left, %d held", got, n, s.Status().HeldCopies)
	}
	t.Logf("%d of %d credentials are left", left(), n)
	s.Release()
	w.until("released", func() bool { return left() == 0 })
}

// What targets read while they are deprovisioned stays until they have gone, although users
// delete the originals with their claims, or all with the namespace.
func TestRealSecretsOutliveTargets(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	referred, named := Related{Resource: secrets, From: SourceSide, References: []string{"spec.late"}}, Related{Resource: secrets, From: SourceSide, Names: []string{"*"}}
	namespaces := source.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	each(t, map[string]struct {
		related   Related
		namespace bool // is deleted
	}{
		"namespace, referred": {referred, true}, "namespace, named": {named, true}, "claims, referred": {referred, false}, "claims, named": {named, false},
	}, func(t *testing.T, _ string, test struct {
		related   Related
		namespace bool
	},
	) {
		t.Helper()
		const claims = 50
		w := &world{TB: t, source: source, target: target}
		config, refused := refusedWrites(t, app.Config())
		from, asked := requests(t, config)
		w.from, w.to = from, w.cluster(control)
		w.sourceNS, w.targetNS = w.fresh(source), w.fresh(target)
		_, stop := w.sync(Options{DeletionLimit: -1, Related: []Related{test.related}})
		defer stop()
		for i := range claims {
			name := fmt.Sprint("w", i)
			w.secret(source, w.sourceNS, name, "cGFzcw==")
			w.create(source, w.sourceNS, w.widget(name, `{"late":"`+name+`"}`, ``))
		}
		for i := range claims {
			name := fmt.Sprint("w", i)
			w.until("the target has its Secret", func() bool { return w.targetOf(name) != nil && w.getSecret(target, w.targetNS, name) != nil })
			w.merge(target, w.targetNS, name, `{"metadata":{"finalizers":["provider.example.org/deprovision"]}}`)
		}
		before, refusedBefore := asked.Load(), refused()
		if test.namespace {
			if err := namespaces.Delete(t.Context(), w.sourceNS, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		} else {
			for i := range claims {
				w.delete(source, w.sourceNS, fmt.Sprint("w", i))
				w.deleteSecret(source, w.sourceNS, fmt.Sprint("w", i))
			}
		}
		w.until("the targets are deprovisioned", func() bool { return w.deprovision(20*time.Second) == 0 })
		eventually(t, "the namespace is empty", func(ctx context.Context) (bool, error) {
			_, err := namespaces.Get(ctx, w.sourceNS, metav1.GetOptions{})
			return apierrors.IsNotFound(err) == test.namespace && w.counted(source, widgets, w.sourceNS) == 0, nil //nolint:contextcheck // the world has one
		})
		w.until("the copies have gone", func() bool { return w.counted(target, secrets, w.targetNS) == 0 })
		if n := asked.Load() - before; n > 10*claims {
			t.Errorf("%d requests at the source", n)
		}
		if n := len(refused()) - len(refusedBefore); n > claims {
			t.Errorf("%d refused writes at the source for %d claims: %v", n, claims, refused()[len(refused())-10:])
		}
	})
}

// refusedWrites has the writes to widgets and Secrets noted that an API server refuses.
func refusedWrites(tb testing.TB, config *rest.Config) (noting *rest.Config, refused func() []string) {
	tb.Helper()
	var mu gosync.Mutex
	var all []string
	noting = rest.CopyConfig(config)
	noting.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			of := strings.Contains(r.URL.Path, "/widgets") || strings.Contains(r.URL.Path, "/secrets")
			if of && r.Method != http.MethodGet && err == nil && response.StatusCode >= http.StatusBadRequest {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, fmt.Sprint(r.Method, " ", r.URL.Path, ": ", response.StatusCode))
			}
			return response, err
		})
	})
	return noting, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// deprovision lets go the targets that have been deleted for a while, for which a provider
// reads the Secret of their name. It answers how many targets there are.
func (w *world) deprovision(takes time.Duration) int {
	w.Helper()
	list, err := w.target.Resource(widgets).Namespace(w.targetNS).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, u := range list.Items {
		if deleted := u.GetDeletionTimestamp(); deleted == nil || time.Since(deleted.Time) < takes {
			continue
		}
		if w.getSecret(w.target, w.targetNS, u.GetName()) == nil {
			w.Errorf("%s is deprovisioned without its Secret", u.GetName())
		}
		w.undo(u.GetName())
	}
	return len(list.Items)
}
