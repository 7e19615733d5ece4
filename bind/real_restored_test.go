// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// parameter is what the parameters of a widget say, and "" where there is no widget.
func (s *side) parameter(t *testing.T, namespace, name string) string {
	t.Helper()
	u, err := find[unstructured.Unstructured](t, s, widgetsGVR, namespace, name)
	if err != nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(u.Object, "spec", "parameters", "text")
	return text
}

func written(text string) map[string]any {
	return map[string]any{"size": int64(1), "parameters": map[string]any{"text": text}}
}

// The App Cluster is restored from a backup beside a konnector that runs. Nothing is rolled
// back and nothing is deleted, and the claim, the binding and doctor say what to do.
func TestAppClusterIsRestored(t *testing.T) {
	w, service, _ := newBehind(t)
	w.app.apply(t, widget("team", "edited", written("old")), widget("team", "deleted", written("old")))
	w.travelled(t, service, "edited")
	w.travelled(t, service, "deleted")
	backup := filepath.Join(tempdir.ForTest(t, "backup"), "backup")
	if err := w.app.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	w.app.apply(t, widget("team", "edited", written("new")), widget("team", "younger", written("new")))
	w.app.delete(t, widgetsGVR, "team", "deleted")
	w.app.apply(t, object("v1", "Namespace", "", "later", nil), widget("later", "one", written("new")))
	later := w.serveNamespace(t, "later", widgetRights)
	w.travelled(t, later, "one")
	eventually(t, func() error {
		if there := w.controlPlane.parameter(t, service, "edited") + w.controlPlane.parameter(t, service, "younger") + w.controlPlane.parameter(t, service, "deleted"); there != "newnew" {
			return fmt.Errorf("parameters are %q", there)
		}
		return nil
	})
	w.churn(t)
	if err := w.app.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}

	w.says(t, "edited", string(klutchsync.ReasonStale), "The next change of its spec goes up", "send-generation=1")
	w.hears(t, "edited", "Warning "+string(klutchsync.ReasonStale))
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced, "1 not in step: 1 SourceStale")
	eventually(t, func() error {
		f, err := w.finding(t, "objects", widgets)
		if err == nil && (f.OK || !strings.Contains(f.Message, "team/edited for ") || !strings.Contains(f.Hint, "then change it")) {
			err = fmt.Errorf("doctor says %+v", f)
		}
		return err
	})
	eventually(t, func() error { // the backup brought its claim back
		if w.controlPlane.parameter(t, service, "deleted") != "old" {
			return errors.New("the claim that came back has no target")
		}
		return nil
	})
	if text := w.controlPlane.parameter(t, service, "edited"); text != "new" {
		t.Errorf("rolled back to %q", text)
	}
	began := time.Now()
	w.app.apply(t, widget("team", "edited", written("newest")))
	eventually(t, func() error {
		if text := w.controlPlane.parameter(t, service, "edited"); text != "newest" {
			return fmt.Errorf("the target says %q", text)
		}
		return nil
	})
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the next edit went up after %s", took)
	}
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, "")
	if w.controlPlane.parameter(t, service, "younger") != "new" {
		t.Error("the target of a claim that is younger than the backup has gone")
	}
	w.condition(t, widgets, v1alpha1.ConditionNamespacesReady, v1alpha1.ReasonServiceNamespaceKept, "later (widgets.example.org one)")
	asked := get[v1alpha1.APIServiceNamespace](t, w.controlPlane, requestedGVR, tenant, "later")
	if text := w.controlPlane.parameter(t, later, "one"); asked.DeletionTimestamp != nil || text != "new" {
		t.Errorf("of a namespace that is younger than the backup the target says %q, and its service namespace is given up: %v", text, asked.DeletionTimestamp)
	}
	w.app.apply(t, object("v1", "Namespace", "", "later", nil))
	w.condition(t, widgets, v1alpha1.ConditionNamespacesReady, "")
}

// churn writes as much to the App Cluster as a backup is usually old, so that what comes
// after the restore has older versions than what was seen before.
func (w *world) churn(t *testing.T) {
	t.Helper()
	for i := range 300 {
		w.app.patch(t, widgetsGVR, cache.NewObjectName("team", "one"), map[string]any{"metadata": map[string]any{"annotations": map[string]any{"n": fmt.Sprint(i)}}})
	}
}

// says waits until the message of a claim has all these words.
func (w *world) says(t *testing.T, name string, words ...string) {
	t.Helper()
	eventually(t, func() error { return w.lacksWords(t, name, words...) })
}

// lacksWords is an error if the message of a claim lacks one of the words now.
func (w *world) lacksWords(t *testing.T, name string, words ...string) error {
	t.Helper()
	u, err := find[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name)
	if err != nil {
		return err
	}
	for _, word := range words {
		if m := u.GetAnnotations()[klutchsync.MessageAnnotation]; !strings.Contains(m, word) {
			return fmt.Errorf("%s says %q, without %q", name, m, word)
		}
	}
	return nil
}

// The Control Plane Cluster is restored from before 14 instances and their Secrets were made.
// Ten are made anew, the others wait until the owner of the binding says that they are meant,
// as the binding and the claims say; the credentials stay until there are new ones.
func TestControlPlaneIsRestored(t *testing.T) {
	const n, limit = 14, 10
	w := newWorld(t)
	w.offer(t, read(t, filepath.Join("testdata", "widgets.yaml"))[0])
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
	w.run(t, bind.Options{})
	w.bind(t, widgets, secretsClaim)
	w.allow(t, widgets)
	w.ready(t, widgets)
	w.app.apply(t, object("v1", "Namespace", "", "team", nil), widget("team", "one", written("before")))
	service := w.serveNamespace(t, "team", widgetRights)
	w.travelled(t, service, "one")
	backup := filepath.Join(tempdir.ForTest(t, "backup"), "backup")
	if err := w.controlPlane.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return fmt.Sprint("db-", i) }
	for i := range n {
		w.app.apply(t, widget("team", name(i), written("after")))
	}
	for i := range n {
		w.travelled(t, service, name(i))
		w.provides(t, service, name(i), "first")
	}
	passwords := func(password string) (have int) {
		for i := range n {
			if s, err := find[unstructured.Unstructured](t, w.app, secretsGVR, "team", name(i)); err == nil && fmt.Sprint(s.Object["data"]) == fmt.Sprint(data(password)) {
				have++
			}
		}
		return have
	}
	all := func(password string) {
		t.Helper()
		eventually(t, func() error {
			if have := passwords(password); have != n {
				return fmt.Errorf("%d of %d credentials say %q", have, n, password)
			}
			return nil
		})
	}
	all("first")
	w.copiesAloneAreHeld(t, service, n, limit)
	all("first")
	for i := range 300 { // so that what comes after the restore has older versions than what was seen
		w.controlPlane.patch(t, widgetsGVR, cache.NewObjectName(service, "one"), map[string]any{"metadata": map[string]any{"annotations": map[string]any{"n": fmt.Sprint(i)}}})
	}
	if err := w.controlPlane.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}

	command := fmt.Sprintf("annotate --overwrite apiservicebinding %s %s=", widgets, klutchsync.ReleaseAnnotation)
	w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, command)
	targets := func() (have int) {
		for i := range n {
			if w.controlPlane.parameter(t, service, name(i)) != "" {
				have++
			}
		}
		return have
	}
	eventually(t, func() error {
		if have := targets(); have != limit {
			return fmt.Errorf("%d targets were made anew", have)
		}
		return nil
	})
	for i := range n {
		if w.controlPlane.parameter(t, service, name(i)) == "" {
			w.says(t, name(i), string(klutchsync.ReasonVanished), "it is not made anew", klutchsync.ReleaseAnnotation)
		}
	}
	eventually(t, func() error {
		f, err := w.finding(t, "objects", widgets)
		if err == nil && (f.OK || !strings.Contains(f.Message, "team/db-")) {
			err = fmt.Errorf("doctor says %+v", f)
		}
		return err
	})
	if have := passwords("first"); have != n || targets() != limit {
		t.Errorf("%d of %d credentials are left, %d targets made anew", have, n, targets())
	}

	w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"metadata": map[string]any{"annotations": map[string]any{klutchsync.ReleaseAnnotation: "now"}}})
	for i := range n {
		w.travelled(t, service, name(i))
		w.provides(t, service, name(i), "second")
	}
	all("second")
	w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, "")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, "")
}

// copiesAloneAreHeld: of n claims the Secrets alone go, more than may at once. The others are held, as
// claims and binding say, until they are made again or it is said that all are meant. In the end
// each has its Secret.
func (w *world) copiesAloneAreHeld(t *testing.T, service string, n, limit int) {
	t.Helper()
	name := func(i int) string { return fmt.Sprint("db-", i) }
	kept := func() (kept []string) {
		for i := range n {
			if _, err := find[unstructured.Unstructured](t, w.app, secretsGVR, "team", name(i)); err == nil {
				kept = append(kept, name(i))
			}
		}
		return kept
	}
	held := func(copies int) {
		t.Helper()
		w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, fmt.Sprintf("%d copies, such as Secrets, are kept here", copies), klutchsync.ReleaseAnnotation+"=")
		if have := len(kept()); have != copies {
			t.Errorf("%d of %d credentials are left, want %d", have, n, copies)
		}
	}
	for i := range n {
		w.controlPlane.delete(t, secretsGVR, service, name(i))
	}
	held(n - limit)
	for _, name := range kept() {
		w.says(t, name, string(klutchsync.ReasonRelated), "and is kept")
	}
	again := kept()[0]
	w.provides(t, service, again, "first")
	w.tellsNothing(t, again)
	w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, fmt.Sprintf("%d copies", n-limit-1))
	w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"metadata": map[string]any{"annotations": map[string]any{klutchsync.ReleaseAnnotation: "all are meant"}}})
	eventually(t, func() error {
		if left := kept(); len(left) != 1 || left[0] != again {
			return fmt.Errorf("after the release there are %v", left)
		}
		return nil
	})
	w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, "")
	for i := range n {
		if w.controlPlane.parameter(t, service, name(i)) == "" {
			t.Errorf("the target of %s has gone", name(i))
		}
		w.provides(t, service, name(i), "first")
	}
}

// tellsNothing waits until a claim has no message.
func (w *world) tellsNothing(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() error {
		if m := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name).GetAnnotations()[klutchsync.MessageAnnotation]; m != "" {
			return fmt.Errorf("the claim says %q", m)
		}
		return nil
	})
}

// provides makes what an automation makes for a widget.
func (w *world) provides(t *testing.T, service, name, password string) {
	t.Helper()
	w.controlPlane.apply(t, object("v1", "Secret", service, name, map[string]any{"data": data(password)}))
	w.controlPlane.patchStatus(t, widgetsGVR, service, name, map[string]any{"secret": name})
}

func data(password string) map[string]any {
	return map[string]any{"password": base64.StdEncoding.EncodeToString([]byte(password))}
}
