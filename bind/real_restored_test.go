// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

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
	backup := filepath.Join(t.TempDir(), "backup")
	if err := w.app.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	w.app.apply(t, widget("team", "edited", written("new")), widget("team", "younger", written("new")))
	w.app.delete(t, widgetsGVR, "team", "deleted")
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

	w.says(t, "edited", string(klutchsync.ReasonStale), "change")
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
	eventually(t, func() error {
		u, err := find[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name)
		if err != nil {
			return err
		}
		for _, word := range words {
			if m := u.GetAnnotations()[klutchsync.MessageAnnotation]; !strings.Contains(m, word) {
				return fmt.Errorf("the claim says %q, without %q", m, word)
			}
		}
		return nil
	})
}
