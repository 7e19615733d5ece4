// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// atomicReference is what controller-gen makes of a SecretKeySelector.
const atomicReference = `"ref":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"name":{"type":"string"},"key":{"type":"string"}}}`

// I8: a restart writes nothing, whatever the schema says of the ownership of fields.
func TestRealRestart(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
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
	ok = ok && t.Run("a status subresource comes", func(t *testing.T) {
		both(v1.with(spec(atomicReference)))
		v.until("the status is taken", func() bool { // an API server that takes up a changed CRD may break a request off
			_, err := v.target.Resource(widgets).Namespace(v.targetNS).Patch(v.Context(), "plain", types.MergePatchType, []byte(`{"status":{"phase":"Later"}}`), metav1.PatchOptions{FieldManager: "someone"}, "status")
			return err == nil
		})
		v.both("plain", "Later", "Later", "status", "phase")
		v.quiet()
		v.restart()
	})
	ok = ok && t.Run("the source's status subresource goes, and comes back", func(t *testing.T) {
		v.statusOver("Plain", v1.with(spec(atomicReference)).with(plain))
		v.statusOver("Back", v1.with(spec(atomicReference)))
	})
	ok = ok && t.Run("a policy removes a field", func(t *testing.T) {
		both(v1.with(spec(atomicReference, "extra")))
		v.learn("atomic", `{"spec":{"extra":"x"}}`, "spec", "extra")
		v.both("atomic", "x", "x", "spec", "extra")
		(&refusing{name: "strip", world: v.world}).stripping(v.target, v.targetNS)
		const objects = 5
		name := func(i int) string { return fmt.Sprint("stripped", i) }
		for i := range objects {
			v.create(v.source, v.sourceNS, v.widget(name(i), `{"size":"small","extra":"x"}`, ``))
		}
		for i := range objects {
			v.both(name(i), "small", "small", "spec", "size")
			v.provideNow(name(i))
		}
		v.quiet()
		version := func(i int) string { return v.targetOf(name(i)).GetResourceVersion() }
		var versions [objects]string
		for i := range objects {
			v.both(name(i), "x", nil, "spec", "extra")
			versions[i] = version(i)
		}
		up, down := len(v.up.written()), len(v.down.written())
		v.set.Put("s", v.build("widgets"))
		v.until("all is read again", func() bool { st, _ := v.set.State("s"); return st.Synced })
		v.until("an apply has shown of each that it is in step", func() bool { return len(v.up.written()) >= up+objects })
		v.quiet()
		applies := map[string]int{}
		for _, w := range v.up.written()[up:] {
			if applies[w]++; applies[w] > 1 || !strings.HasPrefix(w, http.MethodPatch+" ") || !strings.Contains(w, "/stripped") {
				t.Errorf("after the restart: %s, %d times", w, applies[w])
			}
		}
		if w := v.down.written()[down:]; len(w) > 0 {
			t.Errorf("after the restart, at the source: %v", w)
		}
		for i := range objects {
			if got := version(i); got != versions[i] {
				t.Errorf("%s has version %s after the restart, and had %s", name(i), got, versions[i])
			}
		}
	})
	_ = ok && t.Run("fields have names of Crossplane's, or are the source's alone", func(t *testing.T) {
		reference := `:{"type":"object","properties":{"name":{"type":"string"}}}`
		references := `:{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}}}`
		own := v1.with(spec(`"resourceRef"`+reference, `"resourceRefs"`+references, `"crossplane":{"type":"object","properties":{"resourceRefs"`+references+`}}`, "extra"))
		v.shape(v.source, own)
		v.shape(v.target, own.with(func(s *shape) { s.spec = s.spec[:3] }))
		v.until("the fields are known", func() bool {
			u := v.widget("probe", `{"size":"small","crossplane":{"resourceRefs":[{"name":"c"}]}}`, ``)
			for _, of := range []struct {
				dynamic.Interface
				namespace string
			}{{v.source, v.sourceNS}, {v.target, v.targetNS}} {
				got, err := of.Resource(widgets).Namespace(of.namespace).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err != nil || field(got, "spec", "crossplane", "resourceRefs") == nil {
					return false
				}
			}
			return true
		})
		v.create(v.source, v.sourceNS, v.widget("a", `{"size":"small","extra":"x","resourceRef":{"name":"a"},"resourceRefs":[{"name":"b"}],"crossplane":{"resourceRefs":[{"name":"c"}]}}`, ``))
		v.both("a", "a", "a", "spec", "resourceRef", "name")
		for _, path := range [][]string{{"spec", "resourceRefs"}, {"spec", "crossplane", "resourceRefs"}} {
			v.until("the references travel", func() bool {
				return cmp.Equal(field(v.get(v.source, v.sourceNS, "a"), path...), field(v.targetOf("a"), path...)) && field(v.targetOf("a"), path...) != nil
			})
		}
		v.both("a", "x", nil, "spec", "extra")
		v.leftBehind("spec.extra")
		v.provideNow("a")
		v.quiet()
		v.restart()
	})
}

// statusOver gives the kind of the source another shape, over which statuses go on, and what goes from
// them does.
func (v *evolution) statusOver(phase string, s shape) {
	v.Helper()
	v.merge(v.target, v.targetNS, "plain", `{"status":{"node":"a"}}`, "status")
	v.both("plain", "a", "a", "status", "node")
	v.shape(v.source, s)
	v.merge(v.target, v.targetNS, "plain", fmt.Sprintf(`{"status":{"phase":%q,"node":null}}`, phase), "status")
	v.both("plain", phase, phase, "status", "phase")
	v.both("plain", nil, nil, "status", "node")
	v.until("nothing waits", func() bool { return v.set.member("s").sync.engine.refused.Len() == 0 }) // as what a changed CRD broke off
	v.quiet()
	v.restart()
}

// stripping has extra be taken from the widgets of one namespace whose names begin with stripped.
func (w *refusing) stripping(d dynamic.Interface, namespace string) {
	w.Helper()
	w.install(d, admission("mutatingadmissionpolicies"), "", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":%q},"spec":{
		"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":["example.org"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["widgets"]}]},
		"matchConditions":[{"name":"named","expression":"object.metadata.name.startsWith('stripped') && has(object.spec.extra)"}],
		"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'remove', path: '/spec/extra'}]"}}]}}`, w.name))
	w.install(d, admission("mutatingadmissionpolicybindings"), "", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":%q},"spec":{
		"policyName":%q,"matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}}}`, w.name, w.name, namespace))
	w.until("the probe is stripped", func() bool {
		got, err := d.Resource(widgets).Namespace(namespace).Create(w.Context(), w.widget("stripped", `{"size":"small","extra":"x"}`, ``), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && field(got, "spec", "extra") == nil
	})
}
