// SPDX-License-Identifier: Apache-2.0

// Package travel says what of an object goes to the other cluster, and what never does.
//
// All of an object travels but its status and those metadata that belong to the object as
// such: a list of what may travel would have to know each kind. What never does is a list
// of names, since there is no mark by which a tool's own fields are known: the labels and
// annotations by which tools track their objects, and, of the kinds that Crossplane serves, the
// fields in which it keeps the names of what it has composed. Admission policies of the control
// plane have the same list (TestP34AdmissionKnowsTheDenyList compares them).
package travel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Body is all of an object but metadata and status, less what never travels. Composed reports
// whether Crossplane keeps the names of what it has composed in the map at a path; nil is
// where it may.
func Body(object map[string]any, composed func(path ...string) bool) map[string]any {
	out := maps.Clone(object)
	delete(out, "metadata")
	delete(out, "status")
	for _, path := range [][]string{{"spec"}, {"spec", "crossplane"}} {
		if composed == nil || composed(path...) {
			withoutReferences(out, path)
		}
	}
	return out
}

// withoutReferences drops the names of what Crossplane has composed from the map at path, and
// changes no map of the object itself: in the other cluster they would point at nothing or at
// something else.
func withoutReferences(out map[string]any, path []string) {
	for _, name := range path {
		below, ok := out[name].(map[string]any)
		if !ok {
			return
		}
		below = maps.Clone(below)
		out[name], out = below, below
	}
	delete(out, "resourceRef")
	delete(out, "resourceRefs")
}

// Metadata returns the labels or annotations that travel: the ones for which allowed is true;
// nil allows all.
func Metadata(have map[string]string, allowed func(key string) bool) map[string]any {
	out := map[string]any{}
	for k, v := range have {
		if !Denied(k) && (allowed == nil || allowed(k)) {
			out[k] = v
		}
	}
	return out
}

// Denied reports whether a label or annotation belongs to a tool that tracks its
// objects by it. On the other side it would make that tool's counterpart there
// believe that the object is its own, and prune it.
func Denied(key string) bool {
	switch key {
	case "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "olm.managed", "olm.owner", "olm.owner.kind", "olm.owner.namespace":
		return true
	}
	prefix, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc(Trackers(), func(d string) bool {
		return prefix == d || strings.HasSuffix(prefix, "."+d)
	})
}

// Trackers are the domains, with all below them, whose metadata never travel.
func Trackers() []string {
	return []string{
		"klutch.anynines.com", "kube-bind.io", "kcp.io",
		"kubectl.kubernetes.io", "applyset.kubernetes.io", "config.kubernetes.io", "config.k8s.io", "addonmanager.kubernetes.io", "kops.k8s.io", "metacontroller.k8s.io",
		"argoproj.io", "toolkit.fluxcd.io", "fluxcd.io", "fluxcd.controlplane.io", "flux.weave.works", "helm.sh", "k14s.io", "carvel.dev", "kluctl.io",
		"configsync.gke.io", "configmanagement.gke.io", "cattle.io", "open-cluster-management.io", "karmada.io", "projectsveltos.io",
		"tanka.dev", "werf.io", "spinnaker.io", "timoni.sh", "oam.dev", "kratix.io", "kro.run", "gardener.cloud", "loft.sh",
		"crossplane.io", "upbound.io", "cnrm.cloud.google.com", "services.k8s.aws", "serviceoperator.azure.com",
		"kyverno.io", "operators.coreos.com", "operatorframework.io", "operator-sdk", "hnc.x-k8s.io", "cluster.x-k8s.io", "clastix.io",
		"external-secrets.io", "sealedsecrets.bitnami.com", "emberstack.com", "mittwald.de", "appscode.com",
	}
}

// Hash is a short hash of a JSON value; encoding/json sorts the keys.
func Hash(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "" // JSON values can be encoded
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}
