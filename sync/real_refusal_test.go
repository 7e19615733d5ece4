// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	gosync "sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/cluster"
)

// requests counts what a Sync asks an API server of single objects.
func requests(tb testing.TB, config *rest.Config) (*Cluster, *atomic.Int64) {
	tb.Helper()
	n := &atomic.Int64{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") == "" && strings.Contains(r.URL.Path, "/widgets/") {
				n.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	c, err := NewCluster(config)
	if err != nil {
		tb.Fatal(err)
	}
	return c, n
}

// A refusing world is one in which an API server does not take some objects.
type refusing struct {
	*world
	name string
	set  *Set
}

func (w *refusing) install(d dynamic.Interface, gvr schema.GroupVersionResource, namespace, manifest string) {
	w.Helper()
	if _, err := d.Resource(gvr).Namespace(namespace).Create(w.Context(), object(w, manifest), metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *refusing) remove(d dynamic.Interface, gvr schema.GroupVersionResource, namespace string) {
	w.Helper()
	if err := d.Resource(gvr).Namespace(namespace).Delete(w.Context(), w.name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

var resourceQuotas = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}

func admission(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

// policy refuses what rule, in CEL, is not true of, for the objects of one namespace.
func (w *refusing) policy(d dynamic.Interface, namespace, rule string) {
	w.Helper()
	w.admits(d, namespace, widgets.Group, fmt.Sprintf(`{"expression":%q,"message":"the policy says no"},{"expression":"object.metadata.name != 'probe'"}`, rule), widgets.Resource, widgets.Resource+"/status")
	w.refuses(d, namespace)
}

// admits has an API server admit only what validations, in JSON, say of resources in one namespace.
func (w *refusing) admits(d dynamic.Interface, namespace, group, validations string, resources ...string) {
	w.Helper()
	w.install(d, admission("validatingadmissionpolicies"), "", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[%q],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["%s"]}]},
		"validations":[%s]}}`, w.name, group, strings.Join(resources, `","`), validations))
	w.install(d, admission("validatingadmissionpolicybindings"), "", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%q},"spec":{
		"policyName":%q,"validationActions":["Deny"],"matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}}}`, w.name, w.name, namespace))
}

// refuses waits until an API server, which takes a while to know its policies and webhooks,
// refuses a widget called probe.
func (w *refusing) refuses(d dynamic.Interface, namespace string) {
	w.Helper()
	w.until("the probe is refused", func() bool {
		_, err := d.Resource(widgets).Namespace(namespace).Create(w.Context(), w.widget("probe", `{"size":"small"}`, ``), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
}

func (w *refusing) noPolicy(d dynamic.Interface) {
	w.Helper()
	w.remove(d, admission("validatingadmissionpolicybindings"), "")
	w.remove(d, admission("validatingadmissionpolicies"), "")
}

// A rejection is a reason for which API servers do not take an object, and how it begins and ends.
type rejection struct {
	begin, end func(w *refusing)
	told       []string // in the message on the source
	spec       string   // of the objects; empty means a small one
	apart      bool     // the target has a cluster of its own
	most       int      // requests an object in the half minute after it is told; 0 means 2
}

var rejections = map[string]rejection{
	"namespace-missing": {
		begin: func(*refusing) {},
		end:   func(w *refusing) { w.namespace(w.target, w.targetNS) },
		told:  []string{"namespace", "not found"},
	},
	"quota": {
		begin: func(w *refusing) {
			w.namespace(w.target, w.targetNS)
			hard := `{"hard":{"count/widgets.example.org":"0"}}`
			w.install(w.target, resourceQuotas, w.targetNS, `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"`+w.name+`"},"spec":`+hard+`}`)
			quotas := w.target.Resource(resourceQuotas).Namespace(w.targetNS)
			status := `{"status":{"hard":{"count/widgets.example.org":"0"},"used":{"count/widgets.example.org":"0"}}}`
			if _, err := quotas.Patch(w.Context(), w.name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
				w.Fatal(err)
			}
		},
		end:  func(w *refusing) { w.remove(w.target, resourceQuotas, w.targetNS) },
		told: []string{"exceeded quota"},
	},
	"webhook-down": {
		begin: func(w *refusing) {
			w.namespace(w.target, w.targetNS)
			w.install(w.target, admission("validatingwebhookconfigurations"), "", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[{
				"name":"down.example.org","clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":["example.org"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["widgets"]}],
				"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}},"sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":1}]}`, w.name, w.targetNS))
			w.refuses(w.target, w.targetNS)
		},
		end:  func(w *refusing) { w.remove(w.target, admission("validatingwebhookconfigurations"), "") },
		told: []string{"webhook"}, most: 4, // each write follows a read, since an earlier one may have been done
	},
	"policy": {
		begin: func(w *refusing) { w.namespace(w.target, w.targetNS); w.policy(w.target, w.targetNS, "false") },
		end:   func(w *refusing) { w.noPolicy(w.target) },
		told:  []string{"the policy says no"},
	},
	"typed-patch": { // the target's schema has another type, which API servers answer with 500
		begin: func(w *refusing) { w.namespace(w.target, w.targetNS) },
		end: func(w *refusing) {
			for i := range refusedObjects {
				w.merge(w.source, w.sourceNS, fmt.Sprint("w", i), `{"spec":{"late":"3"}}`)
			}
		},
		told: []string{string(ReasonRefused), ".spec.late"},
		spec: `{"size":"small","late":3}`,
	},
	"too-large": { // for etcd, once a policy of the target has doubled it
		begin: func(w *refusing) { w.namespace(w.target, w.targetNS); w.doubling(w.target, w.targetNS) },
		end: func(w *refusing) {
			w.remove(w.target, admission("mutatingadmissionpolicybindings"), "")
			w.remove(w.target, admission("mutatingadmissionpolicies"), "")
		},
		told: []string{string(ReasonRefused), "too large"},
		spec: `{"size":"small","late":"` + strings.Repeat("x", 800<<10) + `"}`,
	},
	"kind-gone": {
		begin: func(w *refusing) {
			w.namespace(w.target, w.targetNS)
			w.until("the kind is known", func() bool { st, _ := w.set.State("s"); return st.Synced })
			kindGone(w)
		},
		end:   func(w *refusing) { install(w.TB, w.target) },
		told:  []string{string(ReasonMissing)},
		apart: true, // its watches wait for up to 40 seconds, and half as long again
	},
	"policy of the source": {
		begin: func(w *refusing) {
			w.namespace(w.target, w.targetNS)
			w.policy(w.source, w.sourceNS, `!has(object.metadata.finalizers)`)
		},
		end:  func(w *refusing) { w.noPolicy(w.source) },
		most: 5, // it is told before all have been asked
	},
}

// doubling has late be color, too, in the widgets of one namespace.
func (w *refusing) doubling(d dynamic.Interface, namespace string) {
	w.Helper()
	w.install(d, admission("mutatingadmissionpolicies"), "", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":%q},"spec":{
		"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":["example.org"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["widgets"]}]},
		"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/spec/color', value: object.spec.late}]"}}]}}`, w.name))
	w.install(d, admission("mutatingadmissionpolicybindings"), "", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":%q},"spec":{
		"policyName":%q,"matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}}}`, w.name, w.name, namespace))
	w.refuses(d, namespace) // it has no late
}

// refusedObjects is how many objects are refused.
const refusedObjects = 5

// What an API server refuses is asked again, ever more rarely, and told; once the reason is
// gone all objects come in step by themselves.
func TestRealRefusals(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	const untyped = `"late": {"x-kubernetes-int-or-string": true}`
	if _, err := source.Resource(crds).Create(t.Context(), object(t, strings.Replace(widgetCRD, `"late": {"type": "string"}`, untyped, 1)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	install(t, source)
	install(t, target)
	const objects, during, most = refusedObjects, 30 * time.Second, 2 // asked after five seconds, and after ten more
	each(t, rejections, func(t *testing.T, name string, c rejection) {
		t.Helper()
		target, config := target, control.Config()
		if c.apart {
			config = cluster.Reused(t, "apart").Config()
			target = admin(t, config)
			install(t, target)
		}
		id := strings.ReplaceAll(name, " ", "-")
		w := &refusing{name: id, world: &world{TB: t, source: source, target: target, sourceNS: "refused-" + id, targetNS: "svc-refused-" + id}}
		var asked [2]*atomic.Int64
		w.from, asked[0] = requests(t, app.Config())
		w.to, asked[1] = requests(t, config)
		w.namespace(source, w.sourceNS)
		w.set = w.put(id)
		began := time.Now()
		c.begin(w)
		for i := range objects {
			w.create(source, w.sourceNS, w.widget(fmt.Sprint("w", i), cmp.Or(c.spec, `{"size":"small"}`), ``))
		}
		if len(c.told) > 0 {
			w.until("it is told", func() bool {
				for i := range objects {
					for _, words := range c.told {
						if !strings.Contains(w.message(fmt.Sprint("w", i)), words) {
							return false
						}
					}
				}
				return true
			})
		} else {
			w.until("it is told", func() bool { st, _ := w.set.State("s"); return st.Err != nil })
		}
		before := asked[0].Load() + asked[1].Load()
		time.Sleep(during)
		n := asked[0].Load() + asked[1].Load() - before
		if most := objects*cmp.Or(c.most, most) + objects/2; int(n) > most {
			t.Errorf("%d requests for %d objects in %v after they were told, want at most %d", n, objects, during, most)
		}
		c.end(w)
		mended := time.Now()
		w.until("all are in step", func() bool {
			for i := range objects {
				if w.targetOf(fmt.Sprint("w", i)) == nil || w.message(fmt.Sprint("w", i)) != "" {
					return false
				}
			}
			return true
		})
		took := time.Since(mended)
		t.Logf("%d requests, and in step after %v", n, took)
		// Pauses double, so that none is longer than all before it, and watches begin anew within a minute.
		if within := max(time.Minute, mended.Sub(began)); took > within {
			t.Errorf("in step %v after the reason has gone, want %v", took, within)
		}
	})
}

// A claim that is deleted while its target's kind is not there says so and stays, since the
// engine cannot tell what is left of the target; it goes when the kind is back.
func TestRealDeletedWithoutKind(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	w := &refusing{name: "deleted", world: &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "deleted", targetNS: "svc-deleted"}}
	install(t, w.source, w.sourceNS)
	install(t, w.target, w.targetNS)
	w.from = w.cluster(app)
	var asked *atomic.Int64
	w.to, asked = requests(t, control.Config())
	w.set = w.put("deleted")
	w.deletedMeanwhile(func() { kindGone(w) }, func() { install(t, w.target) }, asked, func(name string) bool {
		return strings.HasPrefix(w.message(name), string(ReasonMissing)+": ")
	})
}

// A claim that is deleted while its namespace is not mapped stays too, and the hook says so: nothing
// of ours is written to it. It goes when the namespace is mapped again.
func TestRealDeletedWhileUnmapped(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	w := &refusing{name: "unmapped", world: &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "unmapped", targetNS: "svc-unmapped"}}
	install(t, w.source, w.sourceNS)
	install(t, w.target, w.targetNS)
	var asked, askedThere *atomic.Int64
	w.from, asked = requests(t, app.Config())
	w.to, askedThere = requests(t, control.Config())
	table := NewNamespaces(nil)
	table.Set(w.sourceNS, w.targetNS)
	var told gosync.Map
	defer w.run(Options{Mapper: table, DeletionLimit: -1, Hooks: Hooks{Reported: func(_ context.Context, r Report) { told.Store(r.Source.Name, r.Reason) }}})()
	there := int64(0)
	unmap := func() { table.Delete(w.sourceNS); there = askedThere.Load() }
	w.deletedMeanwhile(unmap, func() {
		if n := askedThere.Load() - there; n > 0 {
			t.Errorf("%d requests at the target while its namespace was not mapped", n)
		}
		table.Set(w.sourceNS, w.targetNS)
	}, asked, func(name string) bool {
		reason, _ := told.Load(name)
		return reason == ReasonMissing && w.message(name) == "" && w.targetOf(name) != nil
	})
}

// deletedMeanwhile has claims be deleted between begin and end. They are to stay, and be told, until
// then, for few requests.
func (w *refusing) deletedMeanwhile(begin, end func(), asked *atomic.Int64, told func(name string) bool) {
	w.Helper()
	const objects = refusedObjects
	name := func(i int) string { return fmt.Sprint("w", i) }
	for i := range objects {
		w.create(w.source, w.sourceNS, w.widget(name(i), `{"size":"small"}`, ``))
	}
	for i := range objects {
		w.until("the target exists", func() bool { return w.targetOf(name(i)) != nil })
	}
	begin()
	for i := range objects {
		w.delete(w.source, w.sourceNS, name(i))
	}
	waits := func(i int) bool {
		u := w.get(w.source, w.sourceNS, name(i))
		if u == nil {
			w.Fatalf("%s was let go although its target is not known", name(i))
		}
		return u.GetDeletionTimestamp() != nil && told(name(i))
	}
	for i := range objects {
		w.until("it is told", func() bool { return waits(i) })
	}
	before := asked.Load()
	time.Sleep(15 * time.Second)
	for i := range objects {
		if !waits(i) {
			w.Errorf("%s waits no more, or is not told any more; it says %q", name(i), w.message(name(i)))
		}
	}
	if n := asked.Load() - before; n > 2*objects {
		w.Errorf("%d requests for %d objects in 15s", n, objects)
	}
	end()
	back := time.Now()
	for i := range objects {
		w.until("it goes", func() bool { return w.get(w.source, w.sourceNS, name(i)) == nil && w.targetOf(name(i)) == nil })
	}
	if took := time.Since(back); took > time.Minute {
		w.Errorf("gone %v after the end", took)
	}
}

// kindGone deletes the kind of the target, and waits until it is not served.
func kindGone(w *refusing) {
	w.Helper()
	w.deleteKind()
	w.until("the kind is gone", func() bool {
		_, err := w.target.Resource(widgets).Namespace(w.targetNS).List(w.Context(), metav1.ListOptions{})
		return fates.Is(err, fates.Unserved)
	})
}

// A message that the source's cluster refuses, or that would not fit, stops neither spec nor
// status nor deletion.
func TestRealMessageRefused(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	each(t, map[string]func(w *refusing){
		"mute": func(w *refusing) {
			w.policy(source, w.sourceNS, fmt.Sprintf(`!has(object.metadata.annotations) || !(%q in object.metadata.annotations)`, MessageAnnotation))
			w.policy(target, w.targetNS, `object.spec.size != "large"`)
		},
		"long": func(w *refusing) { w.webhook(target, w.targetNS, strings.Repeat("no ", 100<<10)) },
	}, func(t *testing.T, name string, refuse func(w *refusing)) {
		t.Helper()
		w := &refusing{name: name, world: &world{TB: t, source: source, target: target, sourceNS: name, targetNS: "svc-" + name}}
		install(t, w.source, w.sourceNS)
		install(t, w.target, w.targetNS)
		var asked *atomic.Int64
		w.from, asked = requests(t, app.Config())
		w.to, _ = requests(t, control.Config())
		refuse(w)
		reports := make(chan Report, 100)
		defer w.run(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { reports <- r }}})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"large"}`, ``))
		before := asked.Load()
		time.Sleep(15 * time.Second)
		if n := asked.Load() - before; n > 10 {
			t.Errorf("%d requests at the source in 15s", n)
		}
		if m := w.message("a"); len(m) > maxMessage || name == "long" && !strings.Contains(m, "denied the request: no no") {
			t.Errorf("a message of %d bytes: %.200s", len(m), m)
		}
		select {
		case r := <-reports:
			if name == "mute" && (r.Reason != ReasonRefused && r.Reason != ReasonForbidden || r.Told || !strings.Contains(r.Message, "the policy says no")) {
				t.Errorf("reported %+v", r)
			}
		default:
			t.Error("nothing is reported")
		}
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"small"}}`)
		w.until("the mended spec travels", func() bool { return field(w.targetOf("a"), "spec", "size") == "small" })
		w.provide()
		w.until("the status travels", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
		w.delete(w.source, w.sourceNS, "a")
		w.until("all is gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
	})
}

// webhook has large widgets of a namespace refused, with a message, by a webhook of the test.
func (w *refusing) webhook(d dynamic.Interface, namespace, message string) {
	w.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		review := admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		allowed := !bytes.Contains(review.Request.Object.Raw, []byte(`"size":"large"`))
		review.Response, review.Request = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed, Result: &metav1.Status{Message: message}}, nil
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(review)
	}))
	w.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.install(d, admission("validatingwebhookconfigurations"), "", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[{
		"name":"long.example.org","clientConfig":{"url":%q,"caBundle":%q},"rules":[{"apiGroups":["example.org"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["widgets"]}],
		"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}},"sideEffects":"None","admissionReviewVersions":["v1"]}]}`,
		w.name, server.URL, base64.StdEncoding.EncodeToString(ca), namespace))
	w.until("the webhook refuses", func() bool {
		_, err := d.Resource(widgets).Namespace(namespace).Create(w.Context(), w.widget("probe", `{"size":"large"}`, ``), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
}

// Annotations that leave no room for those of a Sync are a refusal like others: told where
// there is room, asked again ever more rarely, and over with what was asked.
func TestRealFullAnnotations(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	w := &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "full", targetNS: "svc-full"}
	install(t, w.source, w.sourceNS)
	install(t, w.target, w.targetNS)
	var asked [2]*atomic.Int64
	w.from, asked[0] = requests(t, app.Config())
	w.to, asked[1] = requests(t, control.Config())
	reports := make(chan Report, 100)
	defer w.run(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { reports <- r }}})()
	const room = 256 << 10 // all keys and values of an object's annotations: see apimachinery's TotalAnnotationSizeLimitB
	w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, `"annotations":{"note":"`+strings.Repeat("x", room-100)+`"}`))
	select {
	case r := <-reports:
		if r.Reason != ReasonRefused || r.Told || !strings.Contains(r.Message, "annotations") || len(r.Message) > maxMessage {
			t.Errorf("reported %+v", r)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is reported")
	}
	time.Sleep(20 * time.Second)
	if n := asked[0].Load() + asked[1].Load(); n > 20 {
		t.Errorf("%d requests", n)
	}
	w.merge(w.source, w.sourceNS, "a", `{"metadata":{"annotations":{"note":"short"}}}`)
	w.until("it is in step", func() bool { return w.targetOf("a") != nil && w.message("a") == "" })
}

// What others wrote on a target is put right as soon as the target's API server takes it,
// and until then the claim says why it is not.
func TestRealCorrectionRefused(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	w := &refusing{name: "correction", world: &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "correction", targetNS: "svc-correction"}}
	install(t, w.source, w.sourceNS)
	install(t, w.target, w.targetNS)
	w.from, _ = requests(t, app.Config())
	var asked *atomic.Int64
	w.to, asked = requests(t, control.Config())
	w.put("correction")
	w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
	w.until("it is in step", func() bool { return field(w.targetOf("a"), "spec", "size") == "small" })
	w.policy(w.target, w.targetNS, `object.spec.size != "small"`)
	w.merge(w.target, w.targetNS, "a", `{"spec":{"size":"large"}}`)
	w.until("it is told", func() bool { return strings.Contains(w.message("a"), "the policy says no") })
	before := asked.Load()
	time.Sleep(15 * time.Second)
	if n := asked.Load() - before; n > 10 {
		t.Errorf("%d requests at the target in 15s", n)
	}
	w.noPolicy(w.target)
	w.until("it is put right", func() bool {
		return field(w.targetOf("a"), "spec", "size") == "small" && w.message("a") == ""
	})
}

// A status that the App Cluster's API server refuses is told, and asked for ever more rarely; meanwhile
// an edit travels, and once the reason is gone the status comes.
func TestRealStatusRefused(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	w := &refusing{name: "status", world: &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "status", targetNS: "svc-status"}}
	install(t, w.source, w.sourceNS)
	install(t, w.target, w.targetNS)
	var asked *atomic.Int64
	w.from, asked = requests(t, app.Config())
	w.to, _ = requests(t, control.Config())
	var told atomic.Value
	defer w.run(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { told.Store(r) }}})()
	w.policy(w.source, w.sourceNS, `!has(object.status) || !has(object.status.phase)`)
	w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
	w.until("the target has a status", func() bool { w.provide(); return field(w.targetOf("a"), "status", "phase") == "Ready" })
	w.until("it is told", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonStatus)+": ") })
	if r, _ := told.Load().(Report); !strings.Contains(w.message("a"), "the policy says no") || r.Reason != ReasonStatus || r.Message != w.message("a") {
		t.Errorf("message %q, reported %+v", w.message("a"), r)
	}
	before := asked.Load()
	time.Sleep(15 * time.Second)
	if n := asked.Load() - before; n > 10 {
		t.Errorf("%d requests at the source in 15s", n)
	}
	w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
	w.until("the edit travels", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
	if got := w.get(w.source, w.sourceNS, "a").Object["status"]; got != nil || !strings.HasPrefix(w.message("a"), string(ReasonStatus)+": ") {
		t.Errorf("status %v, message %q", got, w.message("a"))
	}
	w.noPolicy(w.source)
	w.until("the status travels", func() bool {
		return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" && w.message("a") == ""
	})
	if r, _ := told.Load().(Report); r.Reason != "" {
		t.Errorf("reported %+v", r)
	}
}

// A Secret that an API server refuses in words that quote it is told in others: on the claim, to the
// embedding program and in the log.
func TestRealSecretRefused(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	const password = "Y2FuYXJ5LXRoYXQtc2luZ3M="
	each(t, map[string]Related{
		"credential": {Resource: secrets, From: TargetSide, References: []string{"status.secret"}},
		"reference":  {Resource: secrets, From: SourceSide, References: []string{"spec.late"}},
	}, func(t *testing.T, name string, related Related) {
		t.Helper()
		w := &refusing{name: name, world: &world{TB: t, source: source, target: target}}
		w.from, w.to = w.cluster(app), w.cluster(control)
		w.sourceNS, w.targetNS = w.fresh(source), w.fresh(target)
		originals, there, copies, here := source, w.sourceNS, target, w.targetNS
		if related.From == TargetSide {
			originals, there, copies, here = target, w.targetNS, source, w.sourceNS
		}
		w.admits(copies, here, "", `{"expression":"false","messageExpression":"'it has the password ' + string(object.data.password)"}`, "secrets")
		original := w.secret(originals, there, "creds", password)
		probe := object(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"probe"}}`)
		probe.Object["data"] = original.Object["data"]
		w.until("it is quoted", func() bool {
			_, err := copies.Resource(secrets).Namespace(here).Create(w.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), password)
		})
		var mu gosync.Mutex
		var said strings.Builder
		say := func(what ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(&said, what...)
		}
		table := NewNamespaces(nil)
		table.Set(w.sourceNS, w.targetNS)
		s, err := New(w.from, w.to, widgets, Options{Mapper: table, Related: []Related{related}, Hooks: Hooks{
			Reported: func(_ context.Context, r Report) { say(r) },
			Refused:  func(_ context.Context, r Refusal) { say(r) },
			Done:     func(_ context.Context, r Result) { say(r, r.Err) },
			Wrote:    func(_ context.Context, w Write) { say("hook Wrote:", w.Step, w.Err) },
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(_, args string) { say(args) }, funcr.Options{Verbosity: 5}))) // the most that the programs log
		done := start(func() error { return s.Run(ctx) })
		w.create(source, w.sourceNS, w.widget("a", `{"late":"creds"}`, ``))
		w.until("it is told", func() bool { w.provide(); return strings.HasPrefix(w.message("a"), string(ReasonRelated)+": ") })
		message := w.message("a")
		w.until("it is reported", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Count(said.String(), message) > 1 // to the hook, and in the log
		})
		say(s.Status())
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		u, err := w.get(source, w.sourceNS, "a").MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		say(string(u))
		if text := said.String(); strings.Contains(text, password) || strings.Contains(text, "canary") {
			t.Errorf("the password stands in what is told:\n%s", text)
		}
	})
}
