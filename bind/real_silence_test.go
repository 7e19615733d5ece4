// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// Of the two control planes of a konnector one takes requests and answers none. That is found within half a
// minute, also where nothing is asked of it, and told of its binding alone, by kubectl bind status and doctor,
// too, and within a minute of its claims that are new, changed or deleted. The claims of the other one
// travel as usual. When it answers again all is in step.
func TestControlPlaneHangs(t *testing.T) {
	const claims = 40 // of each of the three APIs: more than there are workers
	w := newWorld(t)
	plugin := buildPlugin(t)
	export := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	w.offer(t, export.DeepCopy())
	for api, kind := range silentKinds {
		w.offer(t, renamed(export, api, kind))
	}
	other := *w
	other.secret = "kubeconfig-other"
	line := other.connectByLine(t)
	w.app.apply(t, object("v1", "Namespace", "", "team", nil), secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
	w.run(t, bind.Options{})
	w.bind(t, widgets)
	for _, name := range []string{gadgets, gizmos, gears} {
		other.bind(t, name)
	}
	for _, name := range []string{widgets, gadgets, gizmos, gears} {
		w.allow(t, name)
		w.ready(t, name)
	}
	s := &sized{world: w, want: map[string]int64{}}
	for api := range silentKinds {
		for i := range claims {
			s.order(t, api, fmt.Sprint("x-", i), 1)
		}
	}
	w.app.apply(t, widget("team", "one", map[string]any{"size": int64(1)}))
	all := []string{"*"}
	service := w.serveNamespace(t, "team", []rbacv1.PolicyRule{{APIGroups: []string{"example.org"}, Resources: all, Verbs: all}})
	w.travelled(t, service, "one")
	s.inStep(t)
	usual := w.slowest(t, service)
	travels := func(when string) {
		t.Helper()
		most, took := max(2*usual, 250*time.Millisecond), time.Duration(math.MaxInt64)
		for turn := 0; turn < 3 && took > most; turn++ { // a busy machine is slow now and then, one that waits for another control plane each time
			s.change(t)
			took = min(took, w.slowest(t, service))
		}
		if t.Logf("a widget takes %s, usually %s, %s", took, usual, when); took > most {
			t.Errorf("a widget takes %s, usually %s, %s", took, usual, when)
		}
	}

	line.Hush(0)
	began := time.Now()
	w.condition(t, gadgets, v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "no answer in time")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("found after %s", took)
	}
	began = time.Now()
	s.order(t, "gadgets", "new", 1)
	late := map[string]klutchsync.Reason{}
	for of := range s.want {
		if api, name, _ := strings.Cut(of, " "); api == "gadgets" {
			late[name] = klutchsync.ReasonUnavailable
		}
	}
	w.app.delete(t, widgetsGVR.GroupVersion().WithResource("gadgets"), "team", "x-0")
	delete(s.want, "gadgets x-0")
	travels("beside changes that get no answer")
	eventually(t, func() error {
		objects, _, err := bind.Objects(t.Context(), quick(w.app.Config()), gadgets, time.Now())
		told := map[string]klutchsync.Reason{}
		for _, o := range objects {
			told[o.Name] = klutchsync.Reason(o.Reason)
		}
		if err != nil {
			return err
		}
		if diff := cmp.Diff(late, told); diff != "" {
			return fmt.Errorf("told (-want +got):\n%s", diff)
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("claims tell it after %s", took)
	if took > time.Minute {
		t.Errorf("claims tell it after %s", took)
	}
	travels("beside more changes")
	for _, err := range []error{
		plugin.on(t, w.app, "status", widgets)(0, "True"),
		plugin.on(t, w.app, "status", gadgets)(3, "ControlPlaneUnreachable", "TargetUnavailable", "What to do about it: kubectl bind doctor"),
		plugin.on(t, w.app, "doctor")(3, "control-plane klutch-bind/"+other.secret+": Look whether", "binding "+gadgets+": It goes on by itself"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for check, about := range map[string]string{"control-plane": "/" + w.secret, "binding": widgets, "objects": widgets} {
		if f, err := w.finding(t, check, about); err != nil || !f.OK {
			t.Errorf("doctor says of the other one: %+v, %v", f, err)
		}
	}
	w.ready(t, widgets)

	line.Speak()
	for _, name := range []string{gadgets, gizmos, gears} {
		w.ready(t, name)
	}
	s.inStep(t)
	w.condition(t, gadgets, v1alpha1.ConditionObjectsSynced, "")
}

// connectByLine makes the Secret of a world, of which the control plane can fall silent.
func (w *world) connectByLine(t *testing.T) *cluster.Line {
	t.Helper()
	line, err := cluster.NewLine(t.Context(), w.controlPlane.URL())
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubeconfig.Read(w.kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	k.Server = line.URL()
	data, err := k.Write()
	if err != nil {
		t.Fatal(err)
	}
	w.app.apply(t, object("v1", "Namespace", "", v1alpha1.Namespace, nil), secret(v1alpha1.Namespace, w.secret, data))
	return line
}

// silentKinds are the kinds of the APIs whose control plane falls silent.
var silentKinds = map[string]string{"gadgets": "Gadget", "gizmos": "Gizmo", "gears": "Gear"}

// sized are claims of the silent kinds, by API and name, and how large they should be in the Control Plane Cluster.
type sized struct {
	*world
	want map[string]int64
}

// order makes a claim, or changes it.
func (s *sized) order(t *testing.T, api, name string, size int64) {
	t.Helper()
	s.want[api+" "+name] = size
	u := object("example.org/v1", silentKinds[api], "team", name, map[string]any{"spec": map[string]any{"size": size}})
	_, err := s.app.dyn.Resource(widgetsGVR.GroupVersion().WithResource(api)).Namespace("team").Apply(t.Context(), name, u, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		t.Fatal(err)
	}
}

// change asks for more of all.
func (s *sized) change(t *testing.T) {
	t.Helper()
	for of, size := range s.want {
		api, name, _ := strings.Cut(of, " ")
		s.order(t, api, name, size+1)
	}
}

// inStep waits until all are as large as they should be, and there are no others.
func (s *sized) inStep(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		have := map[string]int64{}
		for api := range silentKinds {
			list, err := s.controlPlane.dyn.Resource(widgetsGVR.GroupVersion().WithResource(api)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, u := range list.Items {
				have[api+" "+u.GetName()], _, _ = unstructured.NestedInt64(u.Object, "spec", "size")
			}
		}
		if diff := cmp.Diff(s.want, have); diff != "" {
			return fmt.Errorf("sizes (-want +got):\n%s", diff)
		}
		return nil
	})
}

// slowest is how long a change of widget one takes until it is there, of thirty the slowest but one.
func (w *world) slowest(t *testing.T, service string) time.Duration {
	t.Helper()
	shown, err := w.controlPlane.dyn.Resource(widgetsGVR).Namespace(service).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Stop()
	var all []time.Duration
	for range 30 {
		began := time.Now()
		text := fmt.Sprint(began.UnixNano())
		w.app.patch(t, widgetsGVR, cache.NewObjectName("team", "one"), map[string]any{"spec": map[string]any{"parameters": map[string]any{"text": text}}})
		for there := ""; there != text; {
			select {
			case e := <-shown.ResultChan():
				if u, ok := e.Object.(*unstructured.Unstructured); ok {
					there, _, _ = unstructured.NestedString(u.Object, "spec", "parameters", "text")
				}
			case <-time.After(time.Minute):
				t.Fatal("a change has not come for a minute")
			}
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)-2]
}
