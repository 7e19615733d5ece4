// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	gosync "sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// A fight is a world on real API servers in which others change what a Sync writes, and
// the writes of the Sync are counted.
type fight struct {
	*world
	app       *cluster.Cluster
	near, far *meter // of the source and the target
	began     time.Time
	before    [2]int
}

// insist has a manager change an object whenever patch answers what it should be.
func (c *fight) insist(d dynamic.Interface, ns string, resource schema.GroupVersionResource, patch func(*unstructured.Unstructured) string, sub ...string) (stop func()) {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	events, err := d.Resource(resource).Namespace(ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != "DELETED" {
				if p := patch(u); p != "" {
					_, _ = d.Resource(resource).Namespace(ns).Patch(ctx, u.GetName(), types.MergePatchType, []byte(p), metav1.PatchOptions{FieldManager: "composer"}, sub...)
				}
			}
		}
	}()
	stop = gosync.OnceFunc(func() { cancel(); events.Stop(); <-done })
	c.Cleanup(stop)
	return stop
}

// count begins to count writes, and few checks that there were at most so many since.
func (c *fight) count() {
	c.began, c.before = time.Now(), [2]int{len(c.near.written()), len(c.far.written())}
}

func (c *fight) few(most int) {
	c.Helper()
	near, far := c.near.written()[c.before[0]:], c.far.written()[c.before[1]:]
	took := time.Since(c.began)
	c.Logf("%d writes to the source and %d to the target in %v: %.1f a second", len(near), len(far), took.Round(100*time.Millisecond), float64(len(near)+len(far))/took.Seconds())
	if len(near)+len(far) > most {
		c.Errorf("more than %d writes", most)
	}
}

// policy has the target's API server do something with the objects of the namespace.
func (c *fight) policy(kind, spec string) {
	c.Helper()
	name := c.targetNS + ".example.org"
	match := `"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + c.targetNS + `"}},"resourceRules":[{"apiGroups":["example.org"],"apiVersions":["*"],"resources":["widgets"],"operations":["CREATE","UPDATE","DELETE"]}]},`
	if strings.HasPrefix(kind, "Mutating") {
		match = strings.Replace(match, `,"DELETE"`, "", 1)
	}
	bind := `"policyName":"` + name + `"`
	if strings.HasPrefix(kind, "Validating") {
		bind += `,"validationActions":["Deny"]`
	}
	for k, s := range map[string]string{kind: match + spec, kind + "Binding": bind} {
		u := object(c.TB, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"`+k+`","metadata":{"name":"`+name+`"},"spec":{`+s+`}}`)
		resource := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: strings.Replace(strings.ToLower(k), "policy", "policies", 1)}
		if strings.HasSuffix(k, "Binding") {
			resource.Resource = strings.ToLower(k) + "s"
		}
		c.until(k+" is made", func() bool { // once the API server knows the kind of the CRD
			_, err := c.target.Resource(resource).Create(c.Context(), u, metav1.CreateOptions{})
			return err == nil
		})
	}
}

// strips has the target's API server take annotations off whatever is written.
func (c *fight) strips(expression string) {
	c.Helper()
	c.policy("MutatingAdmissionPolicy", `"failurePolicy":"Fail","reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"`+strings.ReplaceAll(expression, `"`, `\"`)+`"}}]`)
	c.until("the policy is in force", func() bool {
		probe := c.widget("probe", `{}`, `"annotations":{"`+SourceAnnotation+`":"x"}`)
		u, err := c.target.Resource(widgets).Namespace(c.targetNS).Create(c.Context(), probe, metav1.CreateOptions{})
		if err != nil {
			return false // the API server does not know the kind of the CRD yet
		}
		c.delete(c.target, c.targetNS, "probe")
		return u.GetAnnotations()[SourceAnnotation] == ""
	})
}

const (
	stripSource = `has(object.metadata.annotations) && "` + SourceAnnotation + `" in object.metadata.annotations ? [JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey("` + SourceAnnotation + `")}] : []`
	stripAll    = `has(object.metadata.annotations) ? [JSONPatch{op: "remove", path: "/metadata/annotations"}] : []`
)

// contests are what others do to what a Sync writes.
var contests = map[string]func(c *fight){
	"what the user changes while the deletion waits goes up, and the status comes down": func(c *fight) {
		defer c.run(Options{})()
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small"}`, ``))
		c.until("target exists", func() bool { return c.targetOf("a") != nil })
		c.merge(c.target, c.targetNS, "a", `{"metadata":{"finalizers":["provider.example.org/backup"]},"status":{"phase":"Ready"}}`)
		c.merge(c.target, c.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
		c.delete(c.source, c.sourceNS, "a")
		c.until("target is being deleted", func() bool { return c.targetOf("a").GetDeletionTimestamp() != nil })
		c.merge(c.target, c.targetNS, "a", `{"status":{"phase":"WaitsForBackup"}}`, "status")
		c.merge(c.source, c.sourceNS, "a", `{"spec":{"color":"skip-the-backup"}}`)
		began := time.Now()
		c.until("the change went up", func() bool { return field(c.targetOf("a"), "spec", "color") == "skip-the-backup" })
		c.until("the status came down", func() bool { return field(c.get(c.source, c.sourceNS, "a"), "status", "phase") == "WaitsForBackup" })
		c.Logf("in step after %v", time.Since(began).Round(time.Millisecond))
		c.until("the claim says what it waits for", func() bool {
			return strings.Contains(c.message("a"), "being deleted") && strings.Contains(c.message("a"), "provider.example.org/backup")
		})
		c.merge(c.target, c.targetNS, "a", `{"metadata":{"finalizers":null}}`)
		c.until("both are gone", func() bool { return c.targetOf("a") == nil && c.get(c.source, c.sourceNS, "a") == nil })
	},
	"a deletion that the target refuses until the user changes the object": func(c *fight) {
		c.policy("ValidatingAdmissionPolicy", `"failurePolicy":"Fail","validations":[{"expression":"request.operation != 'DELETE' || oldObject.spec.color != 'protected'","message":"it is protected"}]`)
		defer c.run(Options{})()
		c.until("the policy is in force", func() bool {
			c.create(c.target, c.targetNS, c.widget("probe", `{"color":"protected"}`, ``))
			if c.target.Resource(widgets).Namespace(c.targetNS).Delete(c.Context(), "probe", metav1.DeleteOptions{}) == nil {
				return false
			}
			c.merge(c.target, c.targetNS, "probe", `{"spec":{"color":"free"}}`)
			c.delete(c.target, c.targetNS, "probe")
			return true
		})
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small","color":"protected"}`, ``))
		c.until("target exists", func() bool { return c.targetOf("a") != nil })
		c.delete(c.source, c.sourceNS, "a")
		c.until("the claim says why it stays", func() bool {
			return strings.Contains(c.message("a"), "being deleted") && strings.Contains(c.message("a"), "it is protected")
		})
		c.merge(c.source, c.sourceNS, "a", `{"spec":{"color":"free"}}`)
		began := time.Now()
		c.until("both are gone", func() bool { return c.targetOf("a") == nil && c.get(c.source, c.sourceNS, "a") == nil })
		if took, usual := time.Since(began), c.usual(); took > 4*time.Second+3*usual {
			c.Errorf("gone after %v, where a new object takes %v", took, usual)
		}
	},
	"a contested field does not delay another, and who contests it is told": func(c *fight) {
		defer c.run(Options{})()
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small","color":"red"}`, ``))
		c.until("target exists", func() bool { return c.targetOf("a") != nil })
		c.count()
		c.insist(c.target, c.targetNS, widgets, func(u *unstructured.Unstructured) string {
			if field(u, "spec", "size") == "small" {
				return `{"spec":{"size":"large"}}`
			}
			return ""
		})
		c.merge(c.target, c.targetNS, "a", `{"spec":{"size":"large"}}`)
		time.Sleep(12 * time.Second)
		c.few(12)
		c.until("the claim says who", func() bool {
			return strings.Contains(c.message("a"), "composer") && strings.Contains(c.message("a"), "spec.size")
		})
		for _, color := range []string{"green", "blue"} {
			began := time.Now()
			c.merge(c.source, c.sourceNS, "a", `{"spec":{"color":"`+color+`"}}`)
			c.until("the change of the other field went up", func() bool { return field(c.targetOf("a"), "spec", "color") == color })
			took, usual := time.Since(began), c.usual()
			c.Logf("%s after %v, where a new object takes %v", color, took.Round(time.Millisecond), usual.Round(time.Millisecond))
			if took > 3*time.Second+3*usual {
				c.Errorf("%s after %v, where a new object takes %v", color, took, usual)
			}
		}
	},
	"who contests a field is told where drift is reported": func(c *fight) {
		defer c.run(Options{Drift: DriftReport})()
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small"}`, ``))
		c.until("target exists", func() bool { return c.targetOf("a") != nil })
		_, err := c.target.Resource(widgets).Namespace(c.targetNS).Patch(c.Context(), "a", types.MergePatchType, []byte(`{"spec":{"size":"large"}}`), metav1.PatchOptions{FieldManager: "composer"})
		if err != nil {
			c.Fatal(err)
		}
		c.until("the claim says who", func() bool {
			return strings.HasPrefix(c.message("a"), string(ReasonDrifted)) && strings.Contains(c.message("a"), "composer") && strings.Contains(c.message("a"), "spec.size")
		})
	},
	"an owner deletes each target while its kind is served": func(c *fight) {
		defer c.run(Options{})()
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small"}`, ``))
		c.until("target exists", func() bool { return c.targetOf("a") != nil })
		var mu gosync.Mutex
		gone := map[types.UID]bool{}
		stop := c.insist(c.target, c.targetNS, widgets, func(u *unstructured.Unstructured) string {
			mu.Lock()
			defer mu.Unlock()
			gone[u.GetUID()] = true
			_ = c.target.Resource(widgets).Namespace(c.targetNS).Delete(c.Context(), u.GetName(), metav1.DeleteOptions{})
			return ""
		})
		c.until("the claim says that it is made anew, empty", func() bool {
			return strings.HasPrefix(c.message("a"), string(ReasonVanished)) && strings.Contains(c.message("a"), "anew, empty")
		})
		c.count()
		time.Sleep(20 * time.Second)
		c.few(16)
		stop()
		mu.Lock()
		if n := len(gone); n < 2 || n > 6 {
			c.Errorf("%d targets were made for the owner to delete", n)
		}
		mu.Unlock()
		c.delete(c.source, c.sourceNS, "a")
		c.until("both are gone", func() bool { return c.targetOf("a") == nil && c.get(c.source, c.sourceNS, "a") == nil })
	},
	"an annotation of ours that is removed each time": func(c *fight) {
		defer c.run(Options{})()
		c.insist(c.target, c.targetNS, widgets, func(u *unstructured.Unstructured) string {
			if u.GetAnnotations()[SourceAnnotation] != "" {
				return `{"metadata":{"annotations":{"` + SourceAnnotation + `":null}}}`
			}
			return ""
		})
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small"}`, ``))
		c.until("target exists", func() bool { return c.targetOf("a") != nil })
		c.count()
		time.Sleep(8 * time.Second)
		c.few(10)
		c.remains("a")
	},
	"a policy takes off our annotation":  func(c *fight) { c.stripped(stripSource) },
	"a policy takes off all annotations": func(c *fight) { c.stripped(stripAll) },
	"the content of a copy is changed each time": func(c *fight) {
		defer c.run(Options{Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}, {Resource: secrets, From: SourceSide, Names: []string{"mine"}}}})()
		secret := func(d dynamic.Interface, ns, name string) {
			u := object(c.TB, `{"apiVersion":"v1","kind":"Secret","type":"Opaque","metadata":{"name":"`+name+`"},"data":{"k":"b3Vycw=="}}`)
			if _, err := d.Resource(secrets).Namespace(ns).Create(c.Context(), u, metav1.CreateOptions{}); err != nil {
				c.Fatal(err)
			}
		}
		secret(c.target, c.targetNS, "creds")
		secret(c.source, c.sourceNS, "mine")
		insists := func(u *unstructured.Unstructured) string {
			if u.GetAnnotations()[SourceAnnotation] != "" && field(u, "data", "k") != "dGhlaXJz" {
				return `{"data":{"k":"dGhlaXJz"}}`
			}
			return ""
		}
		c.insist(c.source, c.sourceNS, secrets, insists)
		c.insist(c.target, c.targetNS, secrets, insists)
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small"}`, ``))
		c.until("target exists", func() bool { return c.targetOf("a") != nil })
		c.merge(c.target, c.targetNS, "a", `{"status":{"secret":"creds"}}`, "status")
		c.count()
		time.Sleep(8 * time.Second)
		c.few(24)
		c.until("the claim says who", func() bool { return strings.Contains(c.message("a"), "composer") })
	},
	"two Syncs of one source": func(c *fight) {
		other := c.targetNS + "-2"
		c.namespace(c.target, other)
		table := NewNamespaces(nil)
		table.Set(c.sourceNS, other)
		c.create(c.target, other, c.widget("b", `{"size":"small"}`, ``)) // so that the second has something to say
		defer c.run(Options{Binding: "one"})()
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small"}`, ``))
		c.create(c.source, c.sourceNS, c.widget("b", `{"size":"small"}`, ``))
		c.until("targets of the first", func() bool { return c.targetOf("a") != nil && c.targetOf("b") != nil })
		var mu gosync.Mutex
		told := map[Reason]string{}
		defer c.run(Options{Binding: "two", Finalizer: "example.org/second", Mapper: table, Hooks: Hooks{Reported: func(_ context.Context, r Report) {
			mu.Lock()
			defer mu.Unlock()
			told[r.Reason] = r.Message
		}}})()
		c.until("targets of the second", func() bool { return c.get(c.target, other, "a") != nil })
		c.count()
		for _, name := range []string{"a", "b"} {
			c.merge(c.target, c.targetNS, name, `{"status":{"phase":"First"}}`, "status")
		}
		c.merge(c.target, other, "a", `{"status":{"phase":"Second","node":"n2"}}`, "status")
		time.Sleep(5 * time.Second)
		c.few(8)
		for _, name := range []string{"a", "b"} {
			if s := c.get(c.source, c.sourceNS, name); field(s, "status", "phase") != "First" || field(s, "status", "node") != nil {
				c.Errorf("status of %s is %v", name, s.Object["status"])
			}
		}
		mu.Lock()
		if !strings.Contains(told[ReasonShared], DefaultFinalizer) || told[ReasonConflict] == "" {
			c.Errorf("the second Sync has told %v", told)
		}
		mu.Unlock()
		c.merge(c.source, c.sourceNS, "a", `{"spec":{"size":"large"}}`)
		c.until("the change goes up to both", func() bool {
			return field(c.targetOf("a"), "spec", "size") == "large" && field(c.get(c.target, other, "a"), "spec", "size") == "large"
		})
		c.delete(c.source, c.sourceNS, "a")
		c.until("all are gone", func() bool {
			return c.targetOf("a") == nil && c.get(c.target, other, "a") == nil && c.get(c.source, c.sourceNS, "a") == nil
		})
	},
	"a condition of another controller on the source": func(c *fight) {
		stop := c.run(Options{})
		own := map[string]any{"type": "Audited", "status": "True"}
		c.insist(c.source, c.sourceNS, widgets, func(u *unstructured.Unstructured) string {
			conditions, _ := field(u, "status", "conditions").([]any)
			for _, x := range conditions {
				if m, _ := x.(map[string]any); m["type"] == "Audited" {
					return ""
				}
			}
			if len(conditions) == 0 {
				return ""
			}
			return `{"status":{"conditions":` + jsonOf(c, append(conditions, own)) + `}}`
		}, "status")
		c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small"}`, ``))
		c.until("target exists", func() bool { return c.targetOf("a") != nil })
		c.count()
		is := func(want string) {
			c.until("the status comes down, and the condition stays: "+want, func() bool {
				return strings.ReplaceAll(fmt.Sprint(field(c.get(c.source, c.sourceNS, "a"), "status", "conditions")), "map", "") == want
			})
		}
		c.merge(c.target, c.targetNS, "a", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status")
		is("[[status:False type:Ready] [status:True type:Audited]]")
		time.Sleep(4 * time.Second)
		c.few(4)
		c.count()
		c.merge(c.target, c.targetNS, "a", `{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Synced","status":"True"}]}}`, "status")
		is("[[status:True type:Ready] [status:True type:Synced] [status:True type:Audited]]")
		c.merge(c.target, c.targetNS, "a", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status")
		is("[[status:True type:Ready] [status:True type:Audited]]")
		time.Sleep(2 * time.Second)
		c.few(4)
		stop()
		c.count()
		defer c.run(Options{})()
		time.Sleep(2 * time.Second) // in which a restart writes nothing
		c.few(0)
		c.merge(c.target, c.targetNS, "a", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status")
		is("[[status:False type:Ready] [status:True type:Audited]]")
	},
	"the same cluster on both sides": func(c *fight) {
		for _, side := range []*Cluster{c.from, c.cluster(c.app)} { // the same Cluster, and another one of the same API server
			name := map[bool]string{true: "a", false: "b"}[side == c.from]
			w := *c.world
			w.to = side
			stop := w.run(Options{Mapper: prefixWithin{c.sourceNS, Prefix("copy-")}})
			c.create(c.source, c.sourceNS, c.widget(name, `{"size":"small"}`, ``))
			c.until("target exists", func() bool { return c.get(c.source, c.sourceNS, "copy-"+name) != nil })
			time.Sleep(2 * time.Second)
			if list, err := c.source.Resource(widgets).Namespace(c.sourceNS).List(c.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
				c.Errorf("%d objects: %v", len(list.Items), err)
			}
			c.delete(c.source, c.sourceNS, name)
			c.until("both are gone", func() bool {
				return c.get(c.source, c.sourceNS, name) == nil && c.get(c.source, c.sourceNS, "copy-"+name) == nil
			})
			stop()
		}
	},
}

// A prefixWithin a namespace has no targets for others: the clusters are shared.
type prefixWithin struct {
	namespace string
	Mapper
}

func (m prefixWithin) Target(source cache.ObjectName) (cache.ObjectName, bool) {
	target, ok := m.Mapper.Target(source)
	return target, ok && source.Namespace == m.namespace
}

func jsonOf(c *fight, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		c.Error(err)
	}
	return string(data)
}

// usual is how long an object without a contest takes now, on this machine, to be in step.
func (c *fight) usual() time.Duration {
	c.Helper()
	began := time.Now()
	name := c.create(c.source, c.sourceNS, c.widget(fmt.Sprint("usual", began.UnixNano()), `{"color":"free"}`, ``)).GetName()
	c.until("an object without a contest is in step", func() bool { return c.targetOf(name) != nil })
	took := time.Since(began)
	c.delete(c.source, c.sourceNS, name)
	return took
}

// stripped is the life of an object whose target loses annotations at each write.
func (c *fight) stripped(expression string) {
	c.Helper()
	c.strips(expression)
	defer c.run(Options{})()
	c.create(c.source, c.sourceNS, c.widget("a", `{"size":"small"}`, ``))
	c.until("target exists", func() bool { return c.targetOf("a") != nil })
	c.count()
	time.Sleep(8 * time.Second)
	c.few(10)
	c.remains("a")
}

// remains checks that a contested object has a status, takes a change, and goes with its
// target.
func (c *fight) remains(name string) {
	c.Helper()
	began := time.Now()
	c.merge(c.target, c.targetNS, name, `{"status":{"phase":"Ready"}}`, "status")
	c.merge(c.source, c.sourceNS, name, `{"spec":{"size":"large"}}`)
	c.until("the change goes up", func() bool { return field(c.targetOf(name), "spec", "size") == "large" })
	c.until("the status comes down", func() bool { return field(c.get(c.source, c.sourceNS, name), "status", "phase") == "Ready" })
	if took, usual := time.Since(began), c.usual(); took > 4*time.Second+3*usual {
		c.Errorf("in step after %v, where a new object takes %v", took, usual)
	}
	c.until("the claim says so", func() bool { return strings.HasPrefix(c.message(name), string(ReasonContested)) })
	c.delete(c.source, c.sourceNS, name)
	c.until("both are gone", func() bool { return c.get(c.source, c.sourceNS, name) == nil && c.targetOf(name) == nil })
}

// Others change on real API servers what a Sync writes: that is told, costs little, and
// delays nothing else.
func TestRealContests(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	var n atomic.Int64
	each(t, contests, func(t *testing.T, _ string, play func(c *fight)) {
		t.Helper()
		ns := fmt.Sprintf("contest%d", n.Add(1))
		c := &fight{app: app, world: &world{TB: t, source: source, target: target, sourceNS: ns, targetNS: "svc-" + ns}}
		c.near, c.from = metered(t, app.Config())
		c.far, c.to = metered(t, control.Config())
		c.namespace(source, c.sourceNS)
		c.namespace(target, c.targetNS)
		play(c)
	})
}
