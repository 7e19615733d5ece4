// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// trackedBy are the labels and annotations by which tools know what is theirs, and
// prune it where they do not expect it.
var trackedBy = map[string][]string{
	"Argo CD": {
		"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/installation-id", "argocd.argoproj.io/instance", "argocd.argoproj.io/sync-options",
		"app.kubernetes.io/instance",
	},
	"Flux": {
		"kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace", "kustomize.toolkit.fluxcd.io/prune", "kustomize.toolkit.fluxcd.io/checksum",
		"helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace", "fluxcd.io/sync-checksum", "kustomize.toolkit.fluxcd.io/ssa",
		"resourceset.fluxcd.controlplane.io/name", "flux.weave.works/automated",
	},
	"Helm":        {"meta.helm.sh/release-name", "meta.helm.sh/release-namespace", "helm.sh/chart", "helm.sh/hook", "helm.sh/resource-policy", "app.kubernetes.io/managed-by"},
	"kapp":        {"kapp.k14s.io/app", "kapp.k14s.io/association", "kapp.k14s.io/identity", "kapp.k14s.io/original", "packaging.carvel.dev/package"},
	"kubectl":     {"kubectl.kubernetes.io/last-applied-configuration", "applyset.kubernetes.io/part-of", "config.kubernetes.io/owning-inventory", "config.k8s.io/owning-inventory"},
	"Crossplane":  {"crossplane.io/claim-name", "crossplane.io/claim-namespace", "crossplane.io/composite", "crossplane.io/external-name", "crossplane.io/composition-resource-name", "upjet.upbound.io/test", "spaces.upbound.io/group"},
	"Rancher":     {"objectset.rio.cattle.io/id", "objectset.rio.cattle.io/applied", "objectset.rio.cattle.io/hash", "fleet.cattle.io/bundle-id", "field.cattle.io/projectId", "helm.cattle.io/chart-url"},
	"Kluctl":      {"kluctl.io/discriminator"},
	"Config Sync": {"configsync.gke.io/declared-version", "configmanagement.gke.io/managed"},
	"addons":      {"addonmanager.kubernetes.io/mode", "addon.kops.k8s.io/name"},
	"Kyverno":     {"generate.kyverno.io/policy-name", "policies.kyverno.io/last-applied-patches", "app.kubernetes.io/managed-by"},
	"OLM":         {"olm.owner", "olm.owner.namespace", "olm.owner.kind", "olm.managed", "operators.coreos.com/widgets.ns", "olm.operatorframework.io/owner-name"},
	"operators":   {"operator-sdk/primary-resource", "operator-sdk/primary-resource-type", "metacontroller.k8s.io/decorator-controller"},
	"deployers":   {"tanka.dev/environment", "project.werf.io/name", "moniker.spinnaker.io/application", "app.oam.dev/name", "kratix.io/promise-name", "kro.run/instance-id"},
	"fleets": {
		"open-cluster-management.io/hosting-cluster", "work.karmada.io/name", "projectsveltos.io/reference-name", "resources.gardener.cloud/origin",
		"vcluster.loft.sh/managed-by", "kube-bind.io/bound", "hnc.x-k8s.io/inherited-from", "cluster.x-k8s.io/paused", "capsule.clastix.io/resources",
	},
	"clouds":       {"cnrm.cloud.google.com/project-id", "services.k8s.aws/adoption-policy", "serviceoperator.azure.com/reconcile-policy"},
	"Secrets":      {"reconcile.external-secrets.io/created-by", "sealedsecrets.bitnami.com/managed", "reflector.v1.k8s.emberstack.com/reflects", "replicator.v1.mittwald.de/replicate-from", "kubed.appscode.com/sync"},
	"another Sync": {BoundAnnotation + "-by", MessageAnnotation, ReleaseAnnotation, OrphanedAnnotation, TargetAnnotation},
}

// tracked gives an object all of them, as labels too where it can have them, and one
// of its people's that travels.
func tracked(u *unstructured.Unstructured) *unstructured.Unstructured {
	all := map[string]string{"team": "red", "notcrossplane.io/x": "ours", "app.kubernetes.io/name": "shop"}
	for _, keys := range trackedBy {
		for _, key := range keys {
			all[key] = "theirs"
		}
	}
	u.SetLabels(maps.Clone(all))
	u.SetAnnotations(maps.Clone(all))
	return u
}

// TestP22TrackingMetadata: no tool in the one cluster finds its mark on what a Sync has
// made in it from an object of the other, whichever way that went.
func TestP22TrackingMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, all := newBench(t), []string{"*"}
		defer b.sync(widgets,
			Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}, KeepLabels: all, KeepAnnotations: all},
			Related{Resource: secrets, From: SourceSide, Names: []string{"up"}, KeepLabels: all, KeepAnnotations: all},
		)()
		secret := func(name string) *unstructured.Unstructured {
			return tracked(object(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+name+`"},"data":{"a":"Yg=="}}`))
		}
		b.createSecret(b.source, b.sourceNS, secret("up"))
		b.createSecret(b.target, b.targetNS, secret("down"))
		b.create(b.source, b.sourceNS, tracked(b.widget("w", `{}`, ``)))
		b.settle()
		b.names(widgets, "w", `"down"`)
		for what, got := range map[string]*unstructured.Unstructured{
			"target": b.targetOf("w"), "copy in the target": b.getSecret(b.target, b.targetNS, "up"), "copy in the source": b.copied("down"),
		} {
			if got == nil {
				t.Fatalf("no %s", what)
			}
			untracked(t, what, got)
		}
	})
}

func untracked(t *testing.T, what string, got *unstructured.Unstructured) {
	t.Helper()
	for kind, have := range map[string]map[string]string{"label": got.GetLabels(), "annotation": got.GetAnnotations()} {
		for tool, keys := range trackedBy {
			for _, key := range keys {
				if _, there := have[key]; there {
					t.Errorf("%s: %s %s of %s has crossed", what, kind, key, tool)
				}
			}
		}
		for _, key := range []string{"team", "notcrossplane.io/x", "app.kubernetes.io/name"} {
			if have[key] == "" {
				t.Errorf("%s: %s %s has not travelled", what, kind, key)
			}
		}
	}
}

// FuzzP26Prefix: no two objects of one tenant, and no object of another whose prefix
// does not begin with this one's, share a target.
func FuzzP26Prefix(f *testing.F) {
	f.Add("cluster-a-", "cluster-b-", "x", "y")
	f.Add("t-", "t-1-", "1-x", "x")
	f.Fuzz(func(t *testing.T, one, other, a, b string) {
		if one == "" || a == "" || b == "" {
			t.Skip("no object is without a name")
		}
		p, q := Prefix(one), Prefix(other)
		target := func(m Mapper, name string) cache.ObjectName {
			to, ok := m.Target(cache.NewObjectName("", name))
			if !ok {
				t.Fatalf("%q has no target", name)
			}
			return to
		}
		if back, ok := p.Source(target(p, a)); !ok || back.Name != a {
			t.Errorf("%q comes back as %q, %t", a, back.Name, ok)
		}
		if a != b && target(p, a) == target(p, b) {
			t.Errorf("%q and %q share a target", a, b)
		}
		if strings.HasPrefix(one, other) || strings.HasPrefix(other, one) {
			return
		}
		if from, ok := p.Source(target(q, b)); ok {
			t.Errorf("%q takes %s of %q for its %s", one, target(q, b), other, from)
		}
	})
}

// FuzzP26Namespaces: whatever is asked of a table in whatever order, no two namespaces
// share a target, and each way leads back; a recalled namespace leads nowhere for a source. Of each
// byte of ops one half is a source; of the other the top bit recalls, and the rest are a target, or
// none for a deletion.
func FuzzP26Namespaces(f *testing.F) {
	f.Add([]byte{0x11, 0x21})
	f.Add([]byte{0x11, 0x21, 0x12, 0x10, 0x21, 0x11})
	f.Add([]byte{0x19, 0x11, 0x19, 0x1a, 0x29})
	f.Fuzz(func(t *testing.T, ops []byte) {
		table, open := NewNamespaces(nil), map[string]bool{}
		name := func(n byte) string { return string('a' + rune(n)) }
		for _, op := range ops {
			source, target := name(op>>4), "svc-"+name(op&7)
			switch recalls := op&8 != 0; {
			case op&7 == 0:
				table.Delete(source)
				delete(open, source)
			case recalls:
				table.Recall(source, target)
			default:
				open[source] = table.Set(source, target) || open[source]
			}
		}
		pairs, targets := table.mapped(true), map[string]bool{}
		for source, target := range pairs {
			targets[target] = true
			from := cache.NewObjectName(source, "x")
			to, ok := table.Target(from)
			known, _ := table.known(from)
			if back, leads := table.Source(known); !leads || back != from || known.Namespace != target {
				t.Errorf("%s leads to %s, and back to %s (%t)", from, known, back, leads)
			}
			if ok != open[source] || ok && to != known || ok == table.isRecalled(source) {
				t.Errorf("%s leads a source to %s (%t), and is open: %t", from, to, ok, open[source])
			}
		}
		if len(targets) != len(pairs) {
			t.Errorf("shared: %v", pairs)
		}
	})
}
