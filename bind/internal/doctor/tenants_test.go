// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/exporttemplate"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// What a tenant has is on offer by a template of whichever group, as the backend reads them, also
// where ours is not served yet; of foreign groups no Ready is expected.
func TestInheritance(t *testing.T) {
	foreign := exporttemplate.Resources()[1:]
	kinds := []fakecluster.Resource{
		{GroupVersionResource: cluster.APIServiceExports, Kind: "APIServiceExport"},
		{GroupVersionResource: cluster.APIServiceNamespaces, Kind: "APIServiceNamespace"},
		{GroupVersionResource: cluster.ClusterRoles, Kind: "ClusterRole", Cluster: true},
	}
	for _, r := range foreign {
		kinds = append(kinds, fakecluster.Resource{GroupVersionResource: r, Kind: "APIServiceExportTemplate"})
	}
	platform := fakecluster.New(kinds...)
	app := &cluster.App{Interface: platform.Client()}
	put := func(r schema.GroupVersionResource, kind, namespace, name string, spec map[string]any) {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": r.GroupVersion().String(), "kind": kind, "spec": spec}}
		u.SetName(name)
		u.SetNamespace(namespace)
		if _, err := app.Resource(r).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for n, plural := range []string{"widgets", "gears"} {
		put(foreign[n], "APIServiceExportTemplate", "default", plural, map[string]any{
			"APIServiceSelector": map[string]any{"group": "example.org", "resource": plural, "version": nil},
		})
	}
	for plural, scope := range map[string]v1alpha1.Scope{"widgets": v1alpha1.NamespacedScope, "gears": v1alpha1.ClusterScope, "levers": v1alpha1.NamespacedScope} {
		put(cluster.APIServiceExports, "APIServiceExport", "default", plural+".example.org", map[string]any{
			"scope": string(scope), "group": "example.org", "names": map[string]any{"plural": plural, "kind": "X"}, "versions": []any{},
		})
	}
	fates := func() []string {
		objects, withdrawn := inheritance(t.Context(), app, "default")
		return append(slices.DeleteFunc(objects, func(o string) bool { return !strings.HasPrefix(o, "APIServiceExport ") }), withdrawn...)
	}
	role := v1alpha1.PrefixedReadRole + "gears.example.org"
	if diff := cmp.Diff([]string{
		"APIServiceExport gears.example.org: withdrawn, since it is cluster-scoped and not switched on (there is no ClusterRole " + role + "); its objects stay where they are, and nothing of them is kept in step",
		"APIServiceExport levers.example.org: withdrawn, since no template offers it; its objects stay",
		"APIServiceExport widgets.example.org: stays",
		"gears.example.org", "levers.example.org",
	}, fates()); diff != "" {
		t.Errorf("before it is switched on (-want +got):\n%s", diff)
	}
	put(cluster.ClusterRoles, "ClusterRole", "", role, nil)
	if got := strings.Join(fates(), "\n"); !strings.Contains(got, "gears.example.org: stays where --prefixed-apis of the backend name it") {
		t.Errorf("switched on:\n%s", got)
	}

	d := &doctor{app: app, now: time.Now()}
	if offers := d.checkTemplates(t.Context()); !offers || len(d.found) != 2 || slices.ContainsFunc(d.found, func(f Finding) bool { return !f.OK }) {
		t.Errorf("templates of Klutch's: offered: %t, %+v", offers, d.found)
	}
}
