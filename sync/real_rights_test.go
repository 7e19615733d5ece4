// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// right is one that a Sync needs: a verb on a resource.
type right struct{ verb, resource string }

// rightsOf are all rights on one side but those without.
func rightsOf(without ...right) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, r := range []right{
		{"get", "widgets"},
		{"list", "widgets"},
		{"watch", "widgets"},
		{"create", "widgets"},
		{"patch", "widgets"},
		{"delete", "widgets"},
		{"patch", "widgets/status"},
		{"get", "secrets"},
		{"list", "secrets"},
		{"watch", "secrets"},
		{"create", "secrets"},
		{"patch", "secrets"},
		{"delete", "secrets"},
	} {
		if !slices.Contains(without, r) {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"example.org", ""}, Resources: []string{r.resource}, Verbs: []string{r.verb}})
		}
	}
	return rules
}

// account is a service account of a cluster, all of whose rights are of one role.
type account struct {
	testing.TB
	kube   kubernetes.Interface
	name   string
	config *rest.Config
}

func newAccount(tb testing.TB, c *cluster.Cluster, name string) *account {
	tb.Helper()
	config := c.Config()
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	a := &account{TB: tb, kube: kube, name: name, config: rest.AnonymousClientConfig(config)}
	meta := metav1.ObjectMeta{Name: name}
	_, err = kube.CoreV1().ServiceAccounts("default").Create(tb.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err == nil {
		_, err = kube.RbacV1().ClusterRoles().Create(tb.Context(), &rbacv1.ClusterRole{ObjectMeta: meta}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = kube.RbacV1().ClusterRoleBindings().Create(tb.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
		}, metav1.CreateOptions{})
	}
	var token *authenticationv1.TokenRequest
	if err == nil {
		token, err = kube.CoreV1().ServiceAccounts("default").CreateToken(tb.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	}
	if err != nil {
		tb.Fatal(err)
	}
	a.config.BearerToken = token.Status.Token
	return a
}

// may gives the account just these rights.
func (a *account) may(rules []rbacv1.PolicyRule) *Cluster {
	a.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.name}, Rules: rules}
	if _, err := a.kube.RbacV1().ClusterRoles().Update(a.Context(), role, metav1.UpdateOptions{}); err != nil {
		a.Fatal(err)
	}
	c, err := NewCluster(a.config)
	if err != nil {
		a.Fatal(err)
	}
	return c
}

// A right that is missing on one side is told, with the words of the API server;
// once it is given all is in step within seconds, and nothing has to be restarted.
// To list is no right of its own any more: objects are listed by a watch.
func TestRealMissingRights(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	unreadable := func(view string) func(Status, string) bool {
		return func(st Status, _ string) bool {
			var e *ReadError
			return !st.Synced && errors.As(st.Err, &e) && e.View == view && strings.Contains(e.Error(), "forbidden")
		}
	}
	denied := func(st Status, _ string) bool {
		var e *ObjectError
		return errors.As(st.Err, &e) && e.Reason == ReasonDenied
	}
	said := func(reason Reason) func(Status, string) bool {
		return func(_ Status, message string) bool { return strings.HasPrefix(message, string(reason)+": ") }
	}
	type denial struct {
		side     Side
		missing  right
		deletion bool // it is missing only when the source is deleted
		told     func(st Status, message string) bool
	}
	each(t, map[string]denial{
		"watch-source":         {SourceSide, right{"watch", "widgets"}, false, unreadable("source")},
		"patch-source":         {SourceSide, right{"patch", "widgets"}, false, denied},
		"release-source":       {SourceSide, right{"patch", "widgets"}, true, denied},
		"status-source":        {SourceSide, right{"patch", "widgets/status"}, false, said(ReasonStatus)},
		"watch-target":         {TargetSide, right{"watch", "widgets"}, false, unreadable("target")},
		"create-target":        {TargetSide, right{"create", "widgets"}, false, said(ReasonForbidden)},
		"patch-target":         {TargetSide, right{"patch", "widgets"}, false, said(ReasonForbidden)},
		"delete-target":        {TargetSide, right{"delete", "widgets"}, true, said(ReasonForbidden)},
		"get-target":           {TargetSide, right{"get", "widgets"}, true, denied},
		"watch-related-target": {TargetSide, right{"watch", "secrets"}, false, unreadable("related original secrets")},
		"watch-related-source": {SourceSide, right{"watch", "secrets"}, false, unreadable("related copy secrets")},
		"create-related":       {SourceSide, right{"create", "secrets"}, false, said(ReasonRelated)},
		"read-related":         {TargetSide, right{"get", "secrets"}, false, said(ReasonRelated)},
	}, func(t *testing.T, name string, test denial) {
		t.Helper()
		accounts := map[Side]*account{SourceSide: newAccount(t, app, name), TargetSide: newAccount(t, control, name)}
		w := &world{
			TB: t, source: source, target: target, sourceNS: name, targetNS: "svc-" + name,
			from: accounts[SourceSide].may(rightsOf()), to: accounts[TargetSide].may(rightsOf()),
		}
		w.namespace(source, w.sourceNS)
		w.namespace(target, w.targetNS)
		lose := func() { accounts[test.side].may(rightsOf(test.missing)) }
		if !test.deletion {
			lose()
		}
		set := w.put(name)
		w.secret(target, w.targetNS, "creds", "c3dvcmRmaXNo")
		w.create(source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		synced := func() bool {
			w.provide()
			return field(w.get(source, w.sourceNS, "a"), "status", "phase") == "Ready" && w.message("a") == "" &&
				w.getSecret(source, w.sourceNS, "creds") != nil
		}
		if test.deletion {
			w.until("synced", synced)
			w.merge(target, w.targetNS, "a", `{"metadata":{"finalizers":["example.org/provider"]}}`) // so that its end has to be seen
			lose()
			w.delete(source, w.sourceNS, "a")
			synced = func() bool {
				w.undo("a")
				return w.targetOf("a") == nil && w.get(source, w.sourceNS, "a") == nil
			}
		}
		w.until("the missing right is told", func() bool {
			w.provide()
			w.undo("a")
			st, _ := set.State("s")
			return test.told(st, w.message("a"))
		})
		accounts[test.side].may(rightsOf())
		began := time.Now()
		w.until("in step with all rights", func() bool {
			st, _ := set.State("s")
			return synced() && st.Synced && st.Err == nil
		})
		if took := time.Since(began); took > time.Minute {
			t.Errorf("in step %v after the right was given", took)
		}
	})
}

// undo does what a provider does with a target that is being deleted.
func (w *world) undo(name string) {
	w.Helper()
	if u := w.targetOf(name); u != nil && u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) > 0 {
		w.merge(w.target, w.targetNS, name, `{"metadata":{"finalizers":null}}`)
	}
}

// put has a Set run a Sync, called s, until the test ends.
func (w *world) put(binding string) *Set {
	w.Helper()
	set := NewSet(SetOptions{Workers: 8})
	set.Put("s", w.build(binding))
	ctx, cancel := context.WithCancel(w.Context())
	done := start(func() error { return set.Run(ctx) })
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	return set
}

// build returns a Sync of widgets and of the Secrets that they name.
func (w *world) build(binding string) *Sync {
	w.Helper()
	table := NewNamespaces(nil)
	table.Set(w.sourceNS, w.targetNS)
	s, err := New(w.from, w.to, widgets, Options{
		Binding: binding, Mapper: table, DeletionLimit: -1,
		Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}},
	})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// provide is what a provider does with a new target.
func (w *world) provide() {
	w.Helper()
	if u := w.targetOf("a"); u != nil && u.Object["status"] == nil {
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready","secret":"creds"}}`, "status")
	}
}
