// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

// An App Cluster that is restored from a backup goes back in time, and from then on
// says nothing to a watch that is ahead of it. That is noticed, what comes is synced,
// and what has lost its source stays.
func TestRealRestore(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	w := &world{TB: t, source: source, target: target, sourceNS: "default", targetNS: "default"}
	w.from, w.to = w.cluster(app), w.cluster(control)
	opts := Options{Mapper: Identity(), Orphans: OrphanDelete}
	s, stop := w.sync(opts)
	for _, name := range []string{"a", "b", "edited", "edited-later"} {
		w.create(source, "default", w.widget(name, `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf(name) != nil })
	}
	// Beside it, claims of a konnector that does not run while they are restored.
	unseen := &world{TB: t, source: source, target: target, from: w.cluster(app), to: w.cluster(control)}
	unseen.sourceNS, unseen.targetNS = w.fresh(source), w.fresh(target)
	_, stopUnseen := unseen.sync(opts)
	for _, name := range []string{"sent", "edited-again"} {
		unseen.create(source, unseen.sourceNS, w.widget(name, `{"size":"small"}`, ``))
		unseen.until("target exists", func() bool { return unseen.targetOf(name) != nil })
	}
	backup := filepath.Join(tempdir.ForTest(t, "backup"), "backup")
	if err := app.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	w.editThrice("edited", "edited-later")
	unseen.editThrice("sent", "edited-again")
	stopUnseen()
	w.delete(source, "default", "a")
	w.create(source, "default", w.widget("c", `{"size":"small"}`, ``))
	w.until("only b and c are left", func() bool {
		return w.targetOf("a") == nil && w.get(source, "default", "a") == nil && w.targetOf("c") != nil
	})
	for range 300 { // so that what comes does not catch up soon
		w.merge(source, "default", "b", `{"metadata":{"annotations":{"n":"`+time.Now().String()+`"}}}`)
	}
	if err := app.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, name := range []string{"sent", "edited-again"} {
		unseen.merge(source, unseen.sourceNS, name, `{"spec":{"color":"green"}}`)
	}
	w.merge(source, "default", "b", `{"spec":{"size":"large"}}`)
	w.until("what came after the backup has gone up", func() bool { return field(w.targetOf("b"), "spec", "size") == "large" })
	w.until("what the backup brought back has a target", func() bool { return w.targetOf("a") != nil })
	for _, name := range []string{"edited", "edited-later"} {
		w.until("what is older than its target says so, and how an edit is done", func() bool {
			m := w.message(name)
			return strings.HasPrefix(m, string(ReasonStale)) && strings.Contains(m, "nothing is rolled back by itself")
		})
	}
	w.settle()
	if got := field(w.targetOf("edited"), "spec", "size"); got != "large" {
		t.Errorf("the size was rolled back to %v", got)
	}
	goesUp := func(name string) {
		t.Helper()
		began := time.Now()
		w.merge(source, "default", name, `{"spec":{"color":"blue"}}`)
		w.until("what is edited after the restore goes up", func() bool {
			t := w.targetOf(name)
			return field(t, "spec", "color") == "blue" && field(t, "spec", "size") == "small" && w.message(name) == ""
		})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the edit of %s took %v", name, took)
		}
	}
	goesUp("edited")
	t.Logf("in step %v after the restore", time.Since(began).Round(100*time.Millisecond))
	if w.targetOf("c") == nil {
		t.Error("what was made after the backup has gone with its source")
	}
	if !s.suspect.Load() {
		t.Error("no backup is suspected")
	}
	stop()
	w.merge(source, "default", "edited-later", `{"spec":{"color":"green"}}`) // while no konnector runs
	_, stop = w.sync(opts)
	defer stop()
	w.until("what was edited meanwhile goes up after the start", func() bool { return field(w.targetOf("edited-later"), "spec", "color") == "green" })
	goesUp("edited-later")
	unseen.editedUnseen(opts)
}

// editThrice has sources of the first generation be of the fourth, and their targets too.
func (w *world) editThrice(names ...string) {
	w.Helper()
	for _, edit := range []string{`{"color":"red"}`, `{"late":"l"}`, `{"size":"large"}`} {
		for _, name := range names {
			w.merge(w.source, w.sourceNS, name, `{"spec":`+edit+`}`)
		}
	}
	for _, name := range names {
		w.until("edits have gone up", func() bool { o, _ := OriginOf(w.targetOf(name)); return o.Generation == 4 })
	}
}

// editedUnseen starts the konnector after claims were restored and edited. That is not told from what
// the backup brought; it goes up as it stands by the annotation that the message names, or with
// the next edit.
func (w *world) editedUnseen(opts Options) {
	w.Helper()
	before := map[string]any{"size": "large", "color": "red", "late": "l"}
	_, stop := w.sync(opts)
	defer stop()
	for _, name := range []string{"sent", "edited-again"} {
		w.until("it is told, and how it is sent", func() bool {
			m := w.message(name)
			return strings.HasPrefix(m, string(ReasonStale)) && strings.Contains(m, "nothing is rolled back by itself") &&
				strings.Contains(m, "The next change of its spec goes up") && strings.HasSuffix(m, SendAnnotation+"=2")
		})
	}
	w.settle()
	for _, name := range []string{"sent", "edited-again"} {
		if diff := cmp.Diff(before, w.targetOf(name).Object["spec"]); diff != "" {
			w.Errorf("%s went up without a word (-before +now):\n%s", name, diff)
		}
	}
	inStep := func(name string, want map[string]any) {
		w.Helper()
		w.until(name+" goes up as it stands", func() bool { return cmp.Equal(want, w.targetOf(name).Object["spec"]) && w.message(name) == "" })
	}
	w.merge(w.source, w.sourceNS, "sent", `{"metadata":{"annotations":{"`+SendAnnotation+`":"2"}}}`)
	inStep("sent", map[string]any{"size": "small", "color": "green"})
	if diff := cmp.Diff(before, w.targetOf("edited-again").Object["spec"]); diff != "" {
		w.Errorf("what was not sent went up (-before +now):\n%s", diff)
	}
	w.merge(w.source, w.sourceNS, "edited-again", `{"spec":{"late":"again"}}`)
	inStep("edited-again", map[string]any{"size": "small", "color": "green", "late": "again"})
}

func (w *world) cluster(c *cluster.Cluster) *Cluster {
	w.Helper()
	out, err := NewCluster(c.Config())
	if err != nil {
		w.Fatal(err)
	}
	return out
}
