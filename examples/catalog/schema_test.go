// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/examples/catalog/automation"
)

// The API server's own limits on the cost of CEL rules, per call and per object.
const (
	celCallLimit    = 1_000_000
	celObjectBudget = 10_000_000
)

// A judge decides about objects of one kind as an API server does.
type judge struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func judges(t *testing.T) map[string]judge {
	t.Helper()
	out := map[string]judge{}
	for _, object := range all("CustomResourceDefinition") {
		crd := internalCRD(t, object)
		out[crd.Spec.Names.Kind] = newJudge(t, crd)
	}
	return out
}

func internalCRD(t *testing.T, object *unstructured.Unstructured) *apiextensions.CustomResourceDefinition {
	t.Helper()
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &v1, true); err != nil {
		t.Fatalf("%s: %v", object.GetName(), err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	var crd apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &crd, nil); err != nil {
		t.Fatalf("%s: %v", object.GetName(), err)
	}
	return &crd
}

func newJudge(t *testing.T, crd *apiextensions.CustomResourceDefinition) judge {
	t.Helper()
	schema, err := apiextensions.GetSchemaForVersion(crd, "v1")
	if err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	if errs := structuralschema.ValidateStructural(nil, structural); len(errs) > 0 {
		t.Fatalf("%s: %v", crd.Name, errs.ToAggregate())
	}
	errs, err := defaulting.ValidateDefaults(t.Context(), nil, structural, true, true)
	if err != nil || len(errs) > 0 {
		t.Fatalf("%s: defaults: %v, %v", crd.Name, err, errs.ToAggregate())
	}
	validator, _, err := validation.NewSchemaValidator(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return judge{structural, validator, cel.NewValidator(structural, true, celCallLimit)}
}

// Admit defaults and prunes object as a request would and returns its mistakes, among them
// the fields that kubectl refuses and a program loses. Before is nil for a creation.
func (j judge) admit(t *testing.T, object, before map[string]any) field.ErrorList {
	t.Helper()
	var errs field.ErrorList
	for _, path := range pruning.PruneWithOptions(object, j.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Forbidden(field.NewPath(path), "the schema does not know it"))
	}
	defaulting.Default(object, j.structural)
	var old any
	if before == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, object, j.schema)...)
	} else {
		defaulting.Default(before, j.structural)
		old = before
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, object, old, j.schema)...)
	}
	rules, _ := j.rules.Validate(t.Context(), nil, j.structural, object, old, celObjectBudget)
	return append(errs, rules...)
}

func claim(kind string, spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "anynines.com/v1", "kind": kind,
		"metadata": map[string]any{"name": "orders"},
		"spec":     runtime.DeepCopyJSON(spec),
	}
}

// With returns spec with some fields replaced; nil removes one.
func with(spec, changes map[string]any) map[string]any {
	out := maps.Clone(spec)
	for k, v := range changes {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

type fields = map[string]any

func composition(name string) fields { return fields{"name": name} }

func postgres() fields {
	return fields{"service": "a9s-postgresql14", "plan": "postgresql-single-small"}
}

func a9sPostgres(plan string) fields {
	return fields{"service": "a9s-postgresql17", "plan": plan, "compositionRef": composition("a9s-postgresql")}
}

func keyvalue(plan string) fields { return fields{"service": "a9s-keyvalue8", "plan": plan} }

func instanceOf(kind string) fields {
	return fields{"instanceRef": "orders", "serviceInstanceType": kind}
}

func restore() fields {
	return fields{"backupRef": "b", "instanceRef": "orders", "serviceInstanceType": "postgresql"}
}

// A row is a claim that the schema accepts, or refuses with a message; before is
// set for an update.
type row struct {
	name, kind   string
	before, spec fields
	want         string // part of the message; empty: accepted
}

func creations() []row {
	return []row{
		{name: "postgresql", kind: "PostgresqlInstance", spec: postgres()},
		{name: "a9s plan with suffixes", kind: "PostgresqlInstance", spec: a9sPostgres("postgresql-replica-big-ssl-bionic")},
		{name: "parameters", kind: "PostgresqlInstance", spec: with(postgres(), fields{"parameters": fields{"maxConnections": int64(50), "synchronousCommit": "off"}})},
		{name: "no service", kind: "PostgresqlInstance", spec: with(postgres(), fields{"service": nil}), want: "spec.service: Required"},
		{name: "unknown service", kind: "PostgresqlInstance", spec: with(postgres(), fields{"service": "a9s-postgresql9"}), want: "spec.service: Unsupported value"},
		{name: "unknown plan", kind: "PostgresqlInstance", spec: with(postgres(), fields{"plan": "keyvalue-single-nano-ssl"}), want: "spec.plan: Unsupported value"},
		{name: "service of the other composition", kind: "PostgresqlInstance", spec: with(postgres(), fields{"service": "a9s-postgresql17"}), want: "a8s-postgresql offers the services"},
		{name: "a9s has no 14", kind: "PostgresqlInstance", spec: with(a9sPostgres("postgresql-single-nano"), fields{"service": "a9s-postgresql14"}), want: "a9s-postgresql offers the services"},
		{name: "a8s has no ssl plan", kind: "PostgresqlInstance", spec: with(postgres(), fields{"plan": "postgresql-single-small-ssl"}), want: "a8s-postgresql offers the plans"},
		{name: "a9s has no medium plan", kind: "PostgresqlInstance", spec: a9sPostgres("postgresql-single-medium"), want: "a9s-postgresql offers the plans"},
		{name: "unknown composition", kind: "PostgresqlInstance", spec: with(postgres(), fields{"compositionRef": composition("mine")}), want: "spec.compositionRef.name: Unsupported value"},
		{name: "exposed", kind: "PostgresqlInstance", spec: with(postgres(), fields{"expose": "LoadBalancer"})},
		{name: "a9s is not exposed", kind: "PostgresqlInstance", spec: with(a9sPostgres("postgresql-single-nano"), fields{"expose": "LoadBalancer"}), want: "only a8s-postgresql can be exposed"},
		{name: "parameter of the wrong type", kind: "PostgresqlInstance", spec: with(postgres(), fields{"parameters": fields{"maxConnections": "many"}}), want: "maxConnections"},
		{name: "parameter out of range", kind: "PostgresqlInstance", spec: with(postgres(), fields{"parameters": fields{"logStatement": "some"}}), want: "logStatement: Unsupported value"},
		{name: "keyvalue", kind: "KeyvalueInstance", spec: keyvalue("keyvalue-single-nano-ssl")},
		{name: "keyvalue without ssl", kind: "KeyvalueInstance", spec: keyvalue("keyvalue-single-nano"), want: "spec.plan: Unsupported value"},
		{name: "keyvalue events", kind: "KeyvalueInstance", spec: with(keyvalue("keyvalue-single-nano-ssl"), fields{"parameters": fields{"notifyKeyspaceEvents": "what?"}}), want: "notifyKeyspaceEvents"},
		{name: "binding", kind: "ServiceBinding", spec: instanceOf("postgresql")},
		{name: "binding to nothing", kind: "ServiceBinding", spec: fields{"serviceInstanceType": "postgresql"}, want: "spec.instanceRef: Required"},
		{name: "binding to an unknown type", kind: "ServiceBinding", spec: instanceOf("oracle"), want: "spec.serviceInstanceType: Unsupported value"},
		{name: "a8s binds postgresql only", kind: "ServiceBinding", spec: instanceOf("keyvalue"), want: "a8s-servicebinding serves only postgresql; set compositionRef.name to a9s-servicebinding"},
		{name: "a9s binds keyvalue", kind: "ServiceBinding", spec: with(instanceOf("keyvalue"), fields{"compositionRef": composition("a9s-servicebinding")})},
		{name: "region", kind: "ServiceBinding", spec: with(instanceOf("postgresql"), fields{"region": "mars"}), want: "spec.region: Unsupported value"},
		{name: "backup", kind: "Backup", spec: instanceOf("postgresql")},
		{name: "backup of nothing", kind: "Backup", spec: with(instanceOf("postgresql"), fields{"instanceRef": ""}), want: "spec.instanceRef"},
		{name: "restore", kind: "Restore", spec: restore()},
		{name: "a8s restores into a named instance", kind: "Restore", spec: with(restore(), fields{"instanceRef": nil}), want: "a8s-restore needs an instanceRef"},
		{name: "a9s restores into the backup's own", kind: "Restore", spec: with(restore(), fields{"instanceRef": nil, "compositionRef": composition("a9s-restore")})},
	}
}

// services are the orders, which are accepted, and refused with the service or the plan of another data service.
func services() (out []row) {
	for _, order := range catalog.Orders() {
		if kind := order.GetKind(); strings.HasSuffix(kind, "Instance") {
			spec := order.Object["spec"].(fields)
			out = append(out,
				row{name: "as ordered", kind: kind, spec: spec},
				row{name: "another service", kind: kind, spec: with(spec, fields{"service": "a9s-postgresql14"}), want: "spec.service: Unsupported value"},
				row{name: "another plan", kind: kind, spec: with(spec, fields{"plan": "postgresql-single-nano"}), want: "spec.plan: "})
		}
	}
	return out
}

func updates() []row {
	plan := func(name string) fields { return with(postgres(), fields{"plan": name}) }
	return []row{
		{name: "grows", kind: "PostgresqlInstance", before: plan("postgresql-single-small"), spec: plan("postgresql-single-big")},
		{name: "becomes a cluster", kind: "PostgresqlInstance", before: plan("postgresql-single-small"), spec: plan("postgresql-replica-small")},
		{name: "shrinks", kind: "PostgresqlInstance", before: plan("postgresql-single-big"), spec: plan("postgresql-single-small"), want: "a plan cannot shrink: postgresql-single-small is smaller than postgresql-single-big"},
		{name: "grows and becomes single", kind: "PostgresqlInstance", before: plan("postgresql-replica-small"), spec: plan("postgresql-single-big"), want: "a replica plan cannot become a single plan"},
		{name: "loses ssl", kind: "PostgresqlInstance", before: a9sPostgres("postgresql-single-nano-ssl"), spec: a9sPostgres("postgresql-single-nano"), want: "between -ssl and not -ssl"},
		{name: "gets ssl", kind: "PostgresqlInstance", before: a9sPostgres("postgresql-single-nano"), spec: a9sPostgres("postgresql-single-nano-ssl"), want: "between -ssl and not -ssl"},
		{name: "loses bionic", kind: "PostgresqlInstance", before: a9sPostgres("postgresql-single-nano-ssl-bionic"), spec: a9sPostgres("postgresql-single-nano-ssl"), want: "between -bionic and not -bionic"},
		{name: "keeps suffixes and grows", kind: "PostgresqlInstance", before: a9sPostgres("postgresql-single-nano-ssl-bionic"), spec: a9sPostgres("postgresql-single-big-ssl-bionic")},
		{name: "another service", kind: "PostgresqlInstance", before: postgres(), spec: with(postgres(), fields{"service": "a9s-postgresql13"}), want: "Service is an immutable field"},
		{name: "another composition", kind: "PostgresqlInstance", before: with(postgres(), fields{"service": "a9s-postgresql13"}), spec: with(postgres(), fields{"service": "a9s-postgresql13", "compositionRef": composition("a9s-postgresql")}), want: "Composition is an immutable field"},
		{name: "other parameters", kind: "PostgresqlInstance", before: postgres(), spec: with(postgres(), fields{"parameters": fields{"maxConnections": int64(10)}})},
		{name: "binding to another instance", kind: "ServiceBinding", before: instanceOf("postgresql"), spec: with(instanceOf("postgresql"), fields{"instanceRef": "other"}), want: "InstanceRef is an immutable field"},
		{name: "backup of another instance", kind: "Backup", before: instanceOf("postgresql"), spec: with(instanceOf("postgresql"), fields{"instanceRef": "other"}), want: "InstanceRef is an immutable field"},
		{name: "restore of another backup", kind: "Restore", before: restore(), spec: with(restore(), fields{"backupRef": "other"}), want: "BackupRef is an immutable field"},
		{name: "restore into another instance", kind: "Restore", before: restore(), spec: with(restore(), fields{"instanceRef": "other"}), want: "InstanceRef is an immutable field"},
	}
}

func TestSchema(t *testing.T) {
	kinds := judges(t)
	for _, r := range slices.Concat(creations(), updates(), services()) {
		t.Run(r.kind+"/"+r.name, func(t *testing.T) {
			var before map[string]any
			if r.before != nil {
				before = claim(r.kind, r.before)
				if errs := kinds[r.kind].admit(t, before, nil); len(errs) > 0 {
					t.Fatalf("before: %v", errs.ToAggregate())
				}
			}
			errs := kinds[r.kind].admit(t, claim(r.kind, r.spec), before)
			wantMessage(t, errs, r.want)
		})
	}
}

func TestNameBecomesALabel(t *testing.T) {
	object := claim("Backup", instanceOf("postgresql"))
	object["metadata"] = map[string]any{"name": strings.Repeat("a", 64)}
	wantMessage(t, judges(t)["Backup"].admit(t, object, nil), "at most 63 characters")
}

func wantMessage(t *testing.T, errs field.ErrorList, want string) {
	t.Helper()
	switch {
	case want == "" && len(errs) > 0:
		t.Fatalf("refused: %v", errs.ToAggregate())
	case want != "" && len(errs) == 0:
		t.Fatalf("accepted, want %q", want)
	case want != "" && !strings.Contains(errs.ToAggregate().Error(), want):
		t.Fatalf("got %v, want %q", errs.ToAggregate(), want)
	}
}

func TestClaimsAreAccepted(t *testing.T) {
	kinds := judges(t)
	for _, object := range slices.Concat(catalog.Claims(), catalog.Orders()) {
		j, known := kinds[object.GetKind()]
		if !known {
			t.Errorf("%s: no CRD is of kind %s", object.GetName(), object.GetKind())
			continue
		}
		if errs := j.admit(t, object.Object, nil); len(errs) > 0 {
			t.Errorf("%s: %v", object.GetName(), errs.ToAggregate())
		}
		if service, ok := instanceType(object.GetKind()); ok && slices.Contains(automation.Offered(), service) {
			if err := automation.Refuse(object); err != nil {
				t.Errorf("%s: the automation refuses it: %v", object.GetName(), err)
			}
		}
	}
}

var (
	planName  = regexp.MustCompile(`^(.+)-(single|replica|cluster)-(nano|small|medium|big)(-ssl)?$`)
	planSizes = []string{"nano", "small", "medium", "big"}
)

// plansOf are the plans of the order's family that j admits.
func (j judge) plansOf(t *testing.T, order *unstructured.Unstructured) (out []string) {
	t.Helper()
	spec := order.Object["spec"].(fields)
	for _, shape := range []string{"single", "replica", "cluster"} {
		for _, size := range planSizes {
			for _, ssl := range []string{"", "-ssl"} {
				plan := planName.ReplaceAllString(spec["plan"].(string), "$1-"+shape+"-"+size+ssl)
				errs := j.admit(t, claim(order.GetKind(), with(spec, fields{"plan": plan})), nil)
				if planName.MatchString(plan) && len(errs) == 0 {
					out = append(out, plan)
				}
			}
		}
	}
	return out
}

// grows reports whether to has at least the size and the servers of from, and ssl as from has it.
func grows(from, to string) bool {
	a, b := planName.FindStringSubmatch(from), planName.FindStringSubmatch(to)
	return slices.Index(planSizes, a[3]) <= slices.Index(planSizes, b[3]) && (a[2] == "single" || b[2] != "single") && a[4] == b[4]
}

// TestPlansGrow: the plan of an instance becomes a larger one and no other, or is immutable.
func TestPlansGrow(t *testing.T) {
	kinds := judges(t)
	for _, order := range slices.Concat(catalog.Claims(), catalog.Orders()) {
		if _, instance := instanceType(order.GetKind()); !instance {
			continue
		}
		j := kinds[order.GetKind()]
		of := func(plan string) fields {
			return claim(order.GetKind(), with(order.Object["spec"].(fields), fields{"plan": plan}))
		}
		plans := j.plansOf(t, order)
		for _, from := range plans {
			for _, to := range plans {
				err := j.admit(t, of(to), of(from)).ToAggregate()
				immutable := err != nil && strings.Contains(err.Error(), "Plan is an immutable field")
				if accepted := err == nil; accepted != grows(from, to) && !immutable {
					t.Errorf("%s, from %s to %s: accepted %v, %v", order.GetKind(), from, to, accepted, err)
				}
			}
		}
	}
}
