// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// A Control Plane Cluster that is restored from before the Secrets were made takes no
// credentials from the App Cluster; those that are made anew travel, and so does what a
// person releases go.
func TestRealRestoreBeforeSecrets(t *testing.T) {
	t.Parallel()
	const n = 30
	app, control := cluster.ForTest(t, "app"), cluster.ForTest(t, "control")
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
	backup := filepath.Join(t.TempDir(), "backup")
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
