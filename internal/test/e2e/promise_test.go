// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// The promises of SECURITY.md that only the whole system can show. Each test goes by
// the promise's number.

// credential is the tenant's token as it is now. A bind empties the Secret that it is kept
// in, and the backend fills it again.
func (w world) credential() string {
	w.Helper()
	tenant, err := w.s.Tenant(w.ctx)
	w.must(err)
	kept := stack.Object{Cluster: w.s.Control, Resource: secrets, Namespace: tenant, Name: v1alpha1.KubeconfigSecretName}
	secret := w.await(kept, func(o *unstructured.Unstructured) bool { return o != nil && o.Object["data"] != nil })
	encoded, _, _ := unstructured.NestedString(secret.Object, "data", v1alpha1.KubeconfigKey)
	data, err := base64.StdEncoding.DecodeString(encoded)
	w.must(err)
	config, err := clientcmd.Load(data)
	w.must(err)
	token := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token
	if len(token) < 100 {
		w.Fatalf("the tenant has no token")
	}
	return token
}

// TestP2NoSecretInAnyURL looks at what a browser and the issuer see. TestReplicas has what
// the backend sees, from the same people, kubectl bind and a machine.
func TestP2NoSecretInAnyURL(t *testing.T) {
	f := features.New("no secret in any URL").Assess("of a whole login", step("p2", func(w world) {
		out := w.s.Bind(w.ctx, stack.Developer, serviceFlags(services[:1])...)
		w.said(out, exitOK)
		if len(out.URLs) < 5 {
			w.Fatalf("the browser has seen only %d URLs", len(out.URLs))
		}
		w.cleanURLs(out.URLs)
		w.cleanURLs(w.s.Issuer.URLs())
	})).Feature()
	testenv.Test(t, f)
}

// cleanURLs fails the test if one of the URLs has a credential, a password or what a
// credential is made of. Codes and challenges may be there: alone they are worth nothing.
func (w world) cleanURLs(urls []string) {
	w.Helper()
	h, err := newHunt(w.ctx, w.s)
	w.must(err)
	for _, raw := range urls {
		u, err := url.QueryUnescape(raw)
		w.must(err)
		if found := h.in("a URL", u); found != nil {
			w.Errorf("%v: %.60s…", found, u)
		}
		for _, word := range []string{"password=", "kubeconfig", "response=", "code_verifier", "client_secret", "token="} {
			if strings.Contains(u, word) {
				w.Errorf("%s in a URL: %.60s…", word, u)
			}
		}
	}
	if len(urls) < 5 {
		w.Errorf("only %d URLs", len(urls))
	}
}

// TestP12TenantSeesOnlyItsOwn asks the control plane's API server what the tenant's
// service account may do.
func TestP12TenantSeesOnlyItsOwn(t *testing.T) {
	f := features.New("a tenant sees nothing of others").Assess("by access review", step("p12", func(w world) {
		w.newcomer()
		tenant, err := w.s.Tenant(w.ctx)
		w.must(err)
		client, err := kubernetes.NewForConfig(w.s.Control.Config())
		w.must(err)
		own := w.mirror(instances, "").Namespace
		may := func(verb, group, resource, namespace, name string) bool {
			w.Helper()
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(w.ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + tenant + ":" + v1alpha1.TenantServiceAccount, Groups: []string{"system:serviceaccounts", "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name},
			}}, metav1.CreateOptions{})
			w.must(err)
			return review.Status.Allowed
		}
		if !may("patch", "anynines.com", "postgresqlinstances", own, "") {
			w.Error("a tenant may not do its own work")
		}
		for _, namespace := range []string{"", "default", "kube-system", "klutch-backend", "data-services"} {
			for _, verb := range []string{"get", "list", "watch", "create", "patch", "update", "delete", "deletecollection"} {
				for group, resources := range map[string][]string{
					"": {"secrets", "configmaps", "pods", "serviceaccounts"}, "anynines.com": {"postgresqlinstances", "servicebindings"},
					"klutch.anynines.com": {"apiserviceexports", "apiserviceexporttemplates", "clusterbindings"}, "rbac.authorization.k8s.io": {"roles", "rolebindings", "clusterroles"},
				} {
					for _, resource := range resources {
						if may(verb, group, resource, namespace, "") {
							w.Errorf("a tenant may %s %s in namespace %q", verb, resource, namespace)
						}
					}
				}
			}
		}
		for _, verb := range []string{"create", "update", "patch", "delete", "bind", "escalate"} {
			for _, namespace := range []string{own, tenant} {
				if may(verb, "rbac.authorization.k8s.io", "roles", namespace, "") || may(verb, "rbac.authorization.k8s.io", "rolebindings", namespace, "") {
					w.Errorf("a tenant may %s its own rights in %s", verb, namespace)
				}
			}
		}
	})).Feature()
	testenv.Test(t, f)
}

// TestP15NoWildcard looks at every role that we ship or generate, on both clusters.
func TestP15NoWildcard(t *testing.T) {
	f := features.New("no wildcard in any role").Assess("of ours", step("p15", func(w world) {
		seen := 0
		for _, c := range []*stack.Object{{Cluster: w.s.App}, {Cluster: w.s.Control}} {
			client, err := kubernetes.NewForConfig(c.Cluster.Config())
			w.must(err)
			clusterRoles, err := client.RbacV1().ClusterRoles().List(w.ctx, metav1.ListOptions{})
			w.must(err)
			for _, r := range clusterRoles.Items {
				if r.Labels["kubernetes.io/bootstrapping"] != "" {
					continue
				}
				for _, rule := range r.Rules {
					seen++
					w.noWildcard(r.Name, slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs))
				}
			}
			roles, err := client.RbacV1().Roles(metav1.NamespaceAll).List(w.ctx, metav1.ListOptions{})
			w.must(err)
			for _, r := range roles.Items {
				for _, rule := range r.Rules {
					seen++
					w.noWildcard(r.Namespace+"/"+r.Name, slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs))
				}
			}
			bindings, err := client.RbacV1().ClusterRoleBindings().List(w.ctx, metav1.ListOptions{})
			w.must(err)
			for _, b := range bindings.Items {
				for _, s := range b.Subjects {
					if s.Name == v1alpha1.TenantServiceAccount || b.RoleRef.Name == "cluster-admin" && s.Kind == "ServiceAccount" {
						w.Errorf("ClusterRoleBinding %s names %s", b.Name, s.Name)
					}
				}
			}
		}
		if seen < 20 {
			w.Errorf("only %d rules seen", seen)
		}
	})).Feature()
	testenv.Test(t, f)
}

func (w world) noWildcard(role string, words []string) {
	w.Helper()
	for _, word := range words {
		if strings.Contains(word, "*") || word == "escalate" || word == "impersonate" {
			w.Errorf("role %s has %q", role, word)
		}
	}
}

// TestP18DryRunWritesNothing compares everything that a bind could write.
func TestP18DryRunWritesNothing(t *testing.T) {
	f := features.New("a dry run writes nothing").Assess("on either side", step("p18", func(w world) {
		count := func() (all []int) {
			for _, gvr := range append(clusterWide(), stack.Namespaces, stack.CRDs) {
				all = append(all, w.count(w.s.App, gvr), w.count(w.s.Control, gvr))
			}
			return all
		}
		w.await(w.app(serviceAccounts, "default"), stack.There) // Kubernetes makes it in each new namespace
		before := count()
		out := w.s.Bind(w.ctx, stack.Developer, "--service", keyvalue, "--dry-run=client", "-o", "yaml")
		w.said(out, exitOK)
		if !strings.Contains(out.Stdout, "kind: APIServiceExportRequest") || !strings.Contains(out.Stdout, "keyvalueinstances") {
			w.Errorf("stdout does not have the request:\n%s", out.Stdout)
		}
		if after := count(); !slices.Equal(before, after) {
			w.Errorf("objects before %v, after %v", before, after)
		}
	})).Feature()
	testenv.Test(t, f)
}

// TestP28CachesArePrivate: what the command leaves on the person's machine.
func TestP28CachesArePrivate(t *testing.T) {
	f := features.New("no credential on the person's disk").Assess("after a bind", step("p28", func(w world) {
		home := t.TempDir()
		t.Setenv("HOME", home)
		w.said(w.s.Bind(w.ctx, stack.Developer, serviceFlags(services[:1])...), exitOK)
		err := filepath.WalkDir(home, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(data), w.credential()) {
				t.Errorf("%s has the tenant's token", path)
			}
			return err
		})
		w.must(err)
	})).Feature()
	testenv.Test(t, f)
}
