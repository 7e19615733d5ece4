// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const maxNamed = 12 // fields in a note

// lostPolicies are the values of --lost-instances. An object made anew is empty, or does again what it
// did once, so that the first is the default.
var lostPolicies = []string{string(v1alpha1.LostInstancesReport), string(v1alpha1.LostInstancesRecreate)}

// An offering is what a platform team applies to offer an API.
type offering struct {
	api       *v1alpha1.APIServiceExportCRDSpec
	namespace string            // of the template and the Role
	groups    []string          // of people who may bind
	secrets   []string          // paths by which objects name the Secrets that their operator makes
	labels    map[string]string // of such Secrets, where no field names them
	lost      string            // what becomes of an object that vanished from the Control Plane Cluster
}

func offerCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "offer CRD",
		Short: "Print what offers an API of a Control Plane Cluster, as YAML",
		Long: `Print what offers an API of a Control Plane Cluster to App Clusters: the template, the
ClusterRole with what the backend may pass on to tenants, and the Role of people who may
bind it. Nothing is changed; pipe it to kubectl apply. What is worth a look in the CRD
before it is offered is said beside it.`,
		Example: `  kubectl bind offer clusters.postgresql.cnpg.io --secret-label cnpg.io/userType=app | kubectl apply -f -
  kubectl bind offer certificates.cert-manager.io --secret spec.secretName | kubectl apply -f -`,
	}
	o := &offering{}
	cmd.Flags().StringArrayVar(&o.groups, "group", nil, "Group that may bind the API, as the backend names it: oidc:developers. Can be repeated")
	cmd.Flags().StringArrayVar(&o.secrets, "secret", nil, "Path of the field that names a Secret which the App Cluster gets a copy of: status.credentials.name. Can be repeated")
	cmd.Flags().StringToStringVar(&o.labels, "secret-label", nil, "Label of the Secrets to copy, where no field names them: cnpg.io/userType=app")
	cmd.Flags().StringVar(&o.lost, "lost-instances", lostPolicies[0], "What becomes of an object that is lost in the Control Plane Cluster: Report, or Recreate what has no contents and does nothing twice")
	timeout := cmd.Flags().Duration("timeout", time.Minute, "How long to wait for everything together; 0 is for ever")
	out := newOutput(cmd).orYAML()
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) != 1:
			return usageError{"name one CRD; kubectl get crds lists them"}
		case !slices.Contains(lostPolicies, o.lost):
			return usageError{"--lost-instances is " + strings.Join(lostPolicies, " or ")}
		}
		return out.check()
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := withTimeout(cmd.Context(), *timeout)
		defer cancel()
		if err := o.read(ctx, p, args[0]); err != nil {
			return err
		}
		for _, note := range o.notes() {
			p.say("note: " + note)
		}
		return p.printObjects(out, o.objects())
	}
	return cmd
}

// read takes the API from the CRD that is there.
func (o *offering) read(ctx context.Context, p *plugin, name string) error {
	config, err := p.client()
	if err != nil {
		return err
	}
	if o.namespace, _, err = p.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	crd, err := client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).Get(ctx, name, metav1.GetOptions{})
	if fates.Is(err, fates.Absent) {
		return usageError{fmt.Sprintf("the cluster at %s has no CRD %s; its CRDs are listed by: kubectl get crds", config.Host, name)}
	}
	if err == nil {
		o.api, err = crdcompat.Snapshot(crd)
	}
	return err
}

// name is the name of the API, and of each object that offers it.
func (o *offering) name() string { return o.api.Names.Plural + "." + o.api.Group }

func (o *offering) meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func (o *offering) objects() []runtime.Object {
	rbac := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	passOn := &rbacv1.ClusterRole{TypeMeta: rbac("ClusterRole"), ObjectMeta: o.meta("", "klutch-offer-"+o.name()), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{o.api.Group}, Resources: []string{o.api.Names.Plural}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
	}}
	passOn.Labels = map[string]string{v1alpha1.AggregateToBackendLabel: "true"}
	if len(o.secrets)+len(o.labels) > 0 {
		passOn.Rules = append(passOn.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}})
	}
	mayBind := &rbacv1.Role{TypeMeta: rbac("Role"), ObjectMeta: o.meta(o.namespace, "bind-"+o.name()), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"apiserviceexporttemplates"}, ResourceNames: []string{o.name()}, Verbs: []string{"bind"}},
	}}
	objects := []runtime.Object{o.template(), passOn, mayBind}
	if len(o.groups) > 0 {
		to := &rbacv1.RoleBinding{
			TypeMeta: rbac("RoleBinding"), ObjectMeta: mayBind.ObjectMeta,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: mayBind.Name},
		}
		for _, group := range o.groups {
			to.Subjects = append(to.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
		}
		objects = append(objects, to)
	}
	return objects
}

func (o *offering) template() *v1alpha1.APIServiceExportTemplate {
	t := &v1alpha1.APIServiceExportTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceExportTemplate"},
		ObjectMeta: o.meta(o.namespace, o.name()),
	}
	t.Spec.APIServiceSelector = v1alpha1.APIServiceSelector{
		GroupResource: v1alpha1.GroupResource{Group: o.api.Group, Resource: o.api.Names.Plural}, Version: o.stored().Name,
	}
	t.Spec.LostInstances = v1alpha1.LostInstances(o.lost)
	if len(o.secrets) > 0 {
		claim := secretsClaim()
		for _, path := range o.secrets {
			claim.Selector.References = append(claim.Selector.References, v1alpha1.Reference{Path: path})
		}
		t.Spec.PermissionClaims = append(t.Spec.PermissionClaims, claim)
	}
	if len(o.labels) > 0 {
		claim := secretsClaim()
		claim.Selector.LabelSelectors = []map[string]string{o.labels}
		t.Spec.PermissionClaims = append(t.Spec.PermissionClaims, claim)
	}
	return t
}

func secretsClaim() v1alpha1.PermissionClaim {
	claim := v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1", Required: true}
	claim.Selector.Owner = v1alpha1.OwnerProvider
	return claim
}

// stored is the version that the CRD stores.
func (o *offering) stored() v1alpha1.APIServiceExportVersion {
	return o.api.Versions[max(0, slices.IndexFunc(o.api.Versions, func(v v1alpha1.APIServiceExportVersion) bool { return v.Storage }))]
}

// notes are what a platform team looks at before it offers the CRD.
func (o *offering) notes() (notes []string) {
	if o.api.Scope == v1alpha1.ClusterScope {
		notes = append(notes, "the kind is cluster-scoped: each tenant's objects are named after the tenant, and the backend must be told to offer such kinds")
	}
	version := o.stored()
	if version.Subresources.Status == nil {
		notes = append(notes, "the kind has no status subresource: what its operator writes beside the spec counts as a change of the claim")
	}
	var root apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(version.Schema.OpenAPIV3Schema.Raw, &root); err != nil {
		return append(notes, "the schema cannot be read: "+err.Error())
	}
	spec := root.Properties["spec"]
	if fields := named("spec", &spec, "secret", "password", "token", "configmap"); len(fields) > 0 {
		notes = append(notes, "these fields may hold or name Secrets or ConfigMaps, which need a permission claim to travel: "+strings.Join(fields[:min(len(fields), maxNamed)], ", "))
	}
	if fields := named("spec", &spec, "class", "issuer", "serviceaccount", "namespace"); len(fields) > 0 {
		notes = append(notes, "these fields may name what is in the Control Plane Cluster, which tenants then choose: "+strings.Join(fields[:min(len(fields), maxNamed)], ", "))
	}
	for _, path := range o.secrets {
		if field := strings.Split(path, "."); !has(&root, field) {
			notes = append(notes, fmt.Sprintf("the schema has no field %s, which --secret names", path))
		}
	}
	return notes
}

// has tells whether a schema may have a field.
func has(s *apiextensionsv1.JSONSchemaProps, path []string) bool {
	if len(path) == 0 || s.AdditionalProperties != nil || s.XPreserveUnknownFields != nil {
		return true
	}
	next, ok := s.Properties[path[0]]
	return ok && has(&next, path[1:])
}

// named are the paths of fields in whose name one of words is, the outermost of each.
func named(path string, s *apiextensionsv1.JSONSchemaProps, words ...string) (paths []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field, at := s.Properties[name], path+"."+name
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(strings.ToLower(name), word) }) {
			paths = append(paths, at)
			continue
		}
		if field.Items != nil {
			field = *cmp.Or(field.Items.Schema, &field)
		}
		paths = append(paths, named(at, &field, words...)...)
	}
	return paths
}
