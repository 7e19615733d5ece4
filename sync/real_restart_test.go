// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// atomicReference is what controller-gen makes of a SecretKeySelector.
const atomicReference = `"ref":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"name":{"type":"string"},"key":{"type":"string"}}}`

// I8: a restart writes nothing, whatever the schema says of the ownership of fields.
func TestRealRestart(t *testing.T) {
	t.Parallel()
	app, control := cluster.ForTest(t, "app"), cluster.ForTest(t, "control")
	v := &evolution{world: &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "team", targetNS: "svc-team"}}
	install(t, v.source, v.sourceNS)
	install(t, v.target, v.targetNS)
	both := func(s shape) { v.shape(v.source, s); v.shape(v.target, s) }
	both(v1.with(spec(atomicReference)))
	v.down, v.from = metered(t, app.Config())
	v.up, v.to = metered(t, control.Config())
	v.set = v.put("widgets")
	v.until("all is watched", func() bool { st, _ := v.set.State("s"); return st.Synced })
	ok := t.Run("an atomic map", func(t *testing.T) {
		v.create(v.source, v.sourceNS, v.widget("atomic", `{"size":"small","ref":{"name":"a","key":"b"}}`, ``))
		v.both("atomic", "b", "b", "spec", "ref", "key")
		v.provideNow("atomic")
		v.quiet()
		v.restart()
		v.merge(v.target, v.targetNS, "atomic", `{"spec":{"ref":{"key":"drifted"}}}`)
		v.both("atomic", "b", "b", "spec", "ref", "key")
	})
	ok = ok && t.Run("no status subresource", func(t *testing.T) {
		both(v1.with(spec(atomicReference)).with(plain))
		v.create(v.source, v.sourceNS, v.widget("plain", `{"size":"small"}`, ``))
		v.both("plain", "small", "small", "spec", "size")
		v.merge(v.target, v.targetNS, "plain", `{"status":{"phase":"Ready"}}`)
		v.both("plain", "Ready", "Ready", "status", "phase")
		v.quiet()
		v.restart()
	})
	_ = ok && t.Run("a status subresource comes", func(t *testing.T) {
		both(v1.with(spec(atomicReference)))
		v.until("the status is taken", func() bool { // an API server that takes up a changed CRD may break a request off
			_, err := v.target.Resource(widgets).Namespace(v.targetNS).Patch(v.Context(), "plain", types.MergePatchType, []byte(`{"status":{"phase":"Later"}}`), metav1.PatchOptions{FieldManager: "someone"}, "status")
			return err == nil
		})
		v.both("plain", "Later", "Later", "status", "phase")
		v.quiet()
		v.restart()
	})
}
