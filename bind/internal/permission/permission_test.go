// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

func TestRelated(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	claim := func(change func(*v1alpha1.AcceptablePermissionClaim)) v1alpha1.AcceptablePermissionClaim {
		c := v1alpha1.AcceptablePermissionClaim{
			PermissionClaim: v1alpha1.PermissionClaim{
				GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1",
				Selector: v1alpha1.ResourceSelector{Names: []string{"*"}, Namespaces: []string{"*"}}, // the schema's defaults
			},
			State: v1alpha1.ClaimAccepted,
		}
		if change != nil {
			change(&c)
		}
		return c
	}
	type C = v1alpha1.AcceptablePermissionClaim
	for name, tc := range map[string]struct {
		change   func(*C)
		spec     v1alpha1.APIServiceExportSpec
		want     []klutchsync.Related
		problems []string
	}{
		"all":         {want: []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}}}},
		"of provider": {change: func(c *C) { c.Selector.Owner = v1alpha1.OwnerProvider }, want: []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}}}},
		"by name":     {change: func(c *C) { c.Selector.Names = []string{"ca"} }, want: []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"ca"}}}},
		"by namespace": {
			change: func(c *C) { c.Selector.Namespaces = []string{"team"} },
			want:   []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}, Namespaces: []string{"team"}}},
		},
		"by reference": {
			change: func(c *C) { c.Selector.References = []v1alpha1.Reference{{Path: "status.secret"}} },
			want:   []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, References: []string{"status.secret"}}},
		},
		"rejected":           {change: func(c *C) { c.State = v1alpha1.ClaimRejected }},
		"not answered":       {change: func(c *C) { c.State = "" }},
		"required, rejected": {change: func(c *C) { c.State, c.Required = v1alpha1.ClaimRejected, true }, problems: []string{"The claim on secrets is required and was rejected. kubectl bind claims answers it anew."}},
		"of consumer":        {change: func(c *C) { c.Selector.Owner = v1alpha1.OwnerConsumer }, want: []klutchsync.Related{{Resource: secrets, From: klutchsync.SourceSide, Names: []string{"*"}}}},
		"labels": {
			change: func(c *C) { c.Selector.LabelSelectors = []map[string]string{{"a": "b", "c": "d"}, {"e": "f"}} },
			want: []klutchsync.Related{
				{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}, Labels: "a=b,c=d", KeepLabels: []string{"a", "c", "e"}},
				{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}, Labels: "e=f", KeepLabels: []string{"a", "c", "e"}},
			},
		},
		"fields": {change: func(c *C) { c.Selector.FieldSelectors = []string{"type=x"} }, problems: []string{"The claim on secrets is not kept: selector.fieldSelectors is not supported."}},
		"names and references": {change: func(c *C) {
			c.Selector.Names, c.Selector.References = []string{"ca"}, []v1alpha1.Reference{{Path: "status.secret"}}
		}, problems: []string{"The claim on secrets is not kept: selector.names and selector.references together are not supported."}},
		"labels of others": {
			change: func(c *C) {
				c.Selector.LabelSelectors = []map[string]string{{"sidecar.istio.io/inject": "true"}}
				c.Update = &v1alpha1.UpdateOptions{
					Labels:      []v1alpha1.Pattern{{Pattern: "tier"}, {Pattern: "*"}, {Pattern: "t*"}, {Pattern: "example.org/*"}, {Pattern: "*/x"}, {Pattern: "*.example.org/x"}, {Pattern: "x.example.org/*/*"}},
					Annotations: []v1alpha1.Pattern{{Pattern: "db.example.org/note"}, {Pattern: "myexample.org/note"}, {Pattern: "cert-manager.io/inject-ca-from"}, {Pattern: "example.org/"}, {Pattern: ""}},
				}
				c.Read = v1alpha1.ReadOptions{Labels: []v1alpha1.Pattern{{Pattern: "not-this-way"}}}
			},
			want: []klutchsync.Related{{
				Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}, Labels: "sidecar.istio.io/inject=true",
				KeepLabels: []string{"example.org/*", "tier"}, KeepAnnotations: []string{"db.example.org/note"},
			}},
		},
		"of nodes": {change: func(c *C) { c.Resource = "nodes" }, problems: []string{
			"The claim on nodes was accepted and is refused all the same, since it is cluster-scoped: no provider gets it. kubectl bind claims rejects it.",
		}},
		"adopted": {change: func(c *C) { c.AutoAdopt = true }, problems: []string{"The claim on secrets is not kept: autoAdopt and autoDonate are not supported."}},
		"cluster-scoped here alone": {spec: clusterScoped(v1alpha1.IsolationNamespaced), problems: []string{
			"The claim on secrets is not kept: claims of a cluster-scoped API are supported with clusterScopedIsolation Prefixed alone.",
		}},
		"cluster-scoped": {spec: clusterScoped(v1alpha1.IsolationPrefixed), want: []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}}}},
		"cluster-scoped, by reference": {
			change: func(c *C) { c.Selector.References = []v1alpha1.Reference{{Path: "status.secret"}} }, spec: clusterScoped(v1alpha1.IsolationPrefixed),
			problems: []string{"The claim on secrets is not kept: selector.references name objects of the same namespace, and the API is cluster-scoped."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.spec.Group = "example.org"
			got, problems, _ := Judge{spec: &tc.spec}.Select([]C{claim(tc.change)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("related (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func clusterScoped(isolation v1alpha1.Isolation) (spec v1alpha1.APIServiceExportSpec) {
	spec.Scope, spec.ClusterScopedIsolation = v1alpha1.ClusterScope, isolation
	return spec
}

func TestP32Rights(t *testing.T) {
	accepted := v1alpha1.AcceptablePermissionClaim{State: v1alpha1.ClaimAccepted, PermissionClaim: v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}}}
	rejected := v1alpha1.AcceptablePermissionClaim{State: v1alpha1.ClaimRejected, PermissionClaim: v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "pods"}}}
	spec := v1alpha1.APIServiceExportSpec{}
	spec.Group, spec.Names.Plural, spec.Names.Kind = "example.org", "widgets", "Widget"
	spec.Versions = []v1alpha1.APIServiceExportVersion{{Name: "v0"}, {Name: "v1", Served: true}}
	var got []string
	for _, u := range Rights(spec, []v1alpha1.AcceptablePermissionClaim{accepted, rejected}) {
		got = append(got, u.GetKind()+" "+u.GetName()+" "+u.GetLabels()[v1alpha1.AggregateToKonnectorLabel])
		rules, _, _ := unstructured.NestedSlice(u.Object, "rules")
		for _, r := range rules {
			got = append(got, fmt.Sprint(r))
		}
		if kind, ok, _ := unstructured.NestedMap(u.Object, "spec", "paramKind"); ok {
			got = append(got, fmt.Sprint(kind))
		}
	}
	want := []string{
		"ValidatingAdmissionPolicy klutch-bind-claims-widgets.example.org ",
		"map[apiVersion:example.org/v1 kind:Widget]",
		"ValidatingAdmissionPolicyBinding klutch-bind-claims-widgets.example.org ",
		"ClusterRole klutch-bind-claims-widgets.example.org ",
		"map[apiGroups:[] resources:[secrets] verbs:[get list watch create update patch delete]]",
		"ClusterRole klutch-bind-konnector-widgets.example.org true",
		"map[apiGroups:[example.org] resources:[widgets] verbs:[get list watch update patch]]",
		"map[apiGroups:[example.org] resources:[widgets/status] verbs:[update patch]]",
		"map[apiGroups:[rbac.authorization.k8s.io] resourceNames:[klutch-bind-claims-widgets.example.org] resources:[clusterroles] verbs:[bind]]",
		"map[apiGroups:[rbac.authorization.k8s.io] resourceNames:[klutch-bind-claims-widgets.example.org] resources:[rolebindings] verbs:[get list delete]]",
		"map[apiGroups:[rbac.authorization.k8s.io] resources:[rolebindings] verbs:[create]]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	if n := len(Rights(spec, []v1alpha1.AcceptablePermissionClaim{rejected})); n != 1 {
		t.Errorf("%d objects without claims", n)
	}
}

// P32: claims are about namespaces of Kubernetes and of Klutch only where they name them.
func TestP32Reach(t *testing.T) {
	claim := func(state v1alpha1.ClaimState, namespaces ...string) v1alpha1.AcceptablePermissionClaim {
		return v1alpha1.AcceptablePermissionClaim{State: state, PermissionClaim: v1alpha1.PermissionClaim{Selector: v1alpha1.ResourceSelector{Namespaces: namespaces}}}
	}
	for name, c := range map[string]struct {
		claims []v1alpha1.AcceptablePermissionClaim
		want   []string
	}{
		"all":          {[]v1alpha1.AcceptablePermissionClaim{claim("Accepted")}, []string{"team", "payroll"}},
		"star":         {[]v1alpha1.AcceptablePermissionClaim{claim("Accepted", "*", "kube-public")}, []string{"team", "payroll", "kube-public"}},
		"named":        {[]v1alpha1.AcceptablePermissionClaim{claim("Accepted", "team"), claim("Accepted", "klutch-bind")}, []string{"team", "klutch-bind"}},
		"not rejected": {[]v1alpha1.AcceptablePermissionClaim{claim("Accepted", "team"), claim("Rejected")}, []string{"team"}},
	} {
		var got []string
		for _, namespace := range []string{"team", "payroll", "kube-system", "kube-public", "klutch-bind", "klutch-backend"} {
			if NamespacesOf(c.claims).Covers(namespace) {
				got = append(got, namespace)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: namespaces (-want +got):\n%s", name, diff)
		}
	}
}

// TestP32AdmissionKnowsTheLists: the shipped policy of the konnector closes the
// namespaces, reserves the groups and lets pass the types of Secrets that the konnector
// does.
func TestP32AdmissionKnowsTheLists(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/konnector/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy := strings.Join(strings.Fields(string(data)), " ")
	types := klutchsync.DefaultSecretTypes()
	open := slices.IndexFunc(types, func(name string) bool { return strings.HasSuffix(name, "*") })
	prefix := strings.TrimSuffix(types[open], "*")
	for what, rule := range map[string]string{
		"closed namespaces": "!(" + closedExpression() + ")",
		"reserved groups":   "!" + celList(crd.Reserved[:]) + ".exists(g, object.spec.group == g || object.spec.group.endsWith('.' + g))",
		"types of Secrets":  "object.type.startsWith('" + prefix + "') || object.type in " + celList(slices.Delete(types, open, open+1)),
	} {
		if rule = strings.ReplaceAll(rule, `"`, "'"); !strings.Contains(policy, rule) {
			t.Errorf("%s: the policy does not say %s", what, rule)
		}
	}
}

// The closed namespaces are the same to a Sync, to RoleBindings and to policies.
func TestP30ClosedNamespaces(t *testing.T) {
	for _, pattern := range ClosedPatterns() {
		name := strings.Replace(pattern, "*", "system", 1)
		if !isClosed(name) || (Namespaces{others: true}).Covers(name) || !strings.Contains((Namespaces{others: true}).expression(), strings.TrimSuffix(pattern, "*")) {
			t.Errorf("%s is not closed everywhere", name)
		}
	}
}

// P20: what is claimed is ordinary, or has to be named, or is no provider's to have.
func TestP20Policy(t *testing.T) {
	for name, want := range map[string]Policy{
		"secrets":                         Ordinary,
		"configmaps":                      Ordinary,
		"secrets.example.com":             ByName,
		"pods":                            ByName,
		"services":                        ByName,
		"endpoints":                       ByName,
		"events":                          ByName,
		"persistentvolumeclaims":          ByName,
		"daemonsets.apps":                 ByName,
		"cronjobs.batch":                  ByName,
		"ingresses.networking.k8s.io":     ByName,
		"applications.argoproj.io":        ByName,
		"things.policy.example.com":       ByName,
		"things.notklutch.anynines.com":   ByName,
		"serviceaccounts":                 Never,
		"nodes":                           Never,
		"namespaces":                      Never,
		"persistentvolumes":               Never,
		"componentstatuses":               Never,
		"bindings":                        Never,
		"roles.rbac.authorization.k8s.io": Never,
		"clusterrolebindings.rbac.authorization.k8s.io":              Never,
		"localsubjectaccessreviews.authorization.k8s.io":             Never,
		"tokenreviews.authentication.k8s.io":                         Never,
		"mutatingwebhookconfigurations.admissionregistration.k8s.io": Never,
		"validatingadmissionpolicies.admissionregistration.k8s.io":   Never,
		"customresourcedefinitions.apiextensions.k8s.io":             Never,
		"apiservices.apiregistration.k8s.io":                         Never,
		"certificatesigningrequests.certificates.k8s.io":             Never,
		"leases.coordination.k8s.io":                                 Never,
		"poddisruptionbudgets.policy":                                Never,
		"apiservicebindings.klutch.anynines.com":                     Never,
		"gates.example-backend.klutch.anynines.com":                  Never,
		"pods/exec":     Never,
		"*":             Never,
		"*.example.com": Never,
	} {
		resource, group, _ := strings.Cut(name, ".")
		got, why := PolicyOf(v1alpha1.GroupResource{Group: group, Resource: resource}, false)
		if got != want || (why == "") != (want == Ordinary) {
			t.Errorf("%s is %s since %q, want %s", name, got, why, want)
		}
	}
	if got, _ := PolicyOf(v1alpha1.GroupResource{Group: "example.com", Resource: "continents"}, true); got != Never {
		t.Errorf("cluster-scoped: %s", got)
	}
}

func TestCopiedBy(t *testing.T) {
	const long = "a-resource-with-a-very-long-name.in.a.group.with.a.very.long.name.as.well.example.org"
	copied := func(managers ...string) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.BoundAnnotation: "true"},
			Annotations: map[string]string{klutchsync.SourceAnnotation: "u", klutchsync.OwnerAnnotation: "Provider"},
		}}
		for _, m := range managers {
			o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: m, Operation: metav1.ManagedFieldsOperationApply})
		}
		return o
	}
	ours := "klutch.anynines.com/widgets.example.org/related"
	without := func(change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
		o := copied(ours)
		change(o)
		return o
	}
	for name, tc := range map[string]struct {
		binding string
		object  *metav1.PartialObjectMetadata
		ours    bool
		others  bool
	}{
		"ours":                      {"widgets.example.org", copied(ours), true, false},
		"ours, edited":              {"widgets.example.org", copied(ours, "kubectl-edit"), true, false},
		"another binding's":         {"gadgets.example.org", copied(ours), false, true},
		"of a binding like it":      {"widgets.example.org.uk", copied(ours), false, true},
		"shared":                    {"widgets.example.org", copied(ours, "klutch.anynines.com/gadgets.example.org/related"), true, true},
		"a person's":                {"widgets.example.org", copied("kubectl"), false, false},
		"of a long name":            {long, copied("klutch.anynines.com/" + long[:62] + "-0123456789abcdef/related"), true, false},
		"of another long name":      {long, copied("klutch.anynines.com/b" + long[:61] + "-0123456789abcdef/related"), false, true},
		"without label":             {"widgets.example.org", without(func(o *metav1.PartialObjectMetadata) { o.Labels = nil }), false, false},
		"without identity":          {"widgets.example.org", without(func(o *metav1.PartialObjectMetadata) { delete(o.Annotations, klutchsync.SourceAnnotation) }), false, false},
		"a user's, travelling up":   {"widgets.example.org", without(func(o *metav1.PartialObjectMetadata) { o.Annotations[klutchsync.OwnerAnnotation] = "Consumer" }), false, false},
		"a peer's, of the same age": {"widgets.example.org", without(func(o *metav1.PartialObjectMetadata) { o.ManagedFields = nil }), false, false},
	} {
		if ours, others := copiedBy(tc.binding, v1alpha1.OwnerProvider, tc.object); ours != tc.ours || others != tc.others {
			t.Errorf("%s: %t, %t", name, ours, others)
		}
	}
}

// P20: a provider does not say which Secrets of the App Cluster it gets: neither by a
// default of its schema, nor by a status.
func TestP20ProviderNamesSecrets(t *testing.T) {
	claim := func(path string) v1alpha1.AcceptablePermissionClaim {
		return v1alpha1.AcceptablePermissionClaim{State: v1alpha1.ClaimAccepted, PermissionClaim: v1alpha1.PermissionClaim{
			GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1",
			Selector: v1alpha1.ResourceSelector{Owner: v1alpha1.OwnerConsumer, References: []v1alpha1.Reference{{Path: path}}},
		}}
	}
	for _, path := range []string{"status.secret", ".status.secret", "$.status.secret"} {
		if why := unsupported(claim(path).PermissionClaim, &v1alpha1.APIServiceExportSpec{}); why == "" {
			t.Errorf("a claim by %s is kept", path)
		}
	}
	if why := unsupported(claim("spec.auth.secret").PermissionClaim, &v1alpha1.APIServiceExportSpec{}); why != "" {
		t.Errorf("a claim by spec is not kept: %s", why)
	}
	spec := v1alpha1.APIServiceExportSpec{APIServiceExportCRDSpec: v1alpha1.APIServiceExportCRDSpec{
		Group: "example.org", Names: v1alpha1.CRDNames{Plural: "widgets", Kind: "Widget"}, Scope: v1alpha1.NamespacedScope,
		Versions: []v1alpha1.APIServiceExportVersion{{Name: "v1", Served: true, Storage: true}},
	}}
	spec.Versions[0].Schema.OpenAPIV3Schema = runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"spec":{"type":"object","default":{"auth":{"secret":"payroll"}},"properties":{
		"size":{"type":"integer","default":1},"auth":{"type":"object","default":{},"properties":{"secret":{"type":"string","default":"payroll"},"mode":{"type":"string","default":"tls"}}}}}}}`)}
	made, err := crd.NewCRD("widgets.example.org", &spec)
	if err != nil {
		t.Fatal(err)
	}
	crd.DropDefaults(made, HandedOver([]v1alpha1.AcceptablePermissionClaim{claim("spec.auth.secret")}))
	versions, _, _ := unstructured.NestedSlice(made.Object, "spec", "versions")
	got, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
	want := map[string]any{"type": "object", "properties": map[string]any{
		"size": map[string]any{"type": "integer", "default": 1.0},
		"auth": map[string]any{"type": "object", "properties": map[string]any{
			"secret": map[string]any{"type": "string"}, "mode": map[string]any{"type": "string", "default": "tls"},
		}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema of spec (-want +got):\n%s", diff)
	}
}
