// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// named is a binding of which nothing is known but its name.
func named(name string) *v1alpha1.APIServiceBinding {
	return &v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// What is wrong has a next step of its own.
func TestAdvice(t *testing.T) {
	going := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Now()}}}
	binding := func(reason string, conditionType ...string) *v1alpha1.APIServiceBinding {
		b := &v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}}
		b.Status.Conditions = []v1alpha1.Condition{
			v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, "Whatever", ""), v1alpha1.True(v1alpha1.ConditionSecretValid),
			v1alpha1.False(v1alpha1.ConditionConnected, v1alpha1.SeverityError, v1alpha1.ReasonPending, ""),
			v1alpha1.False(append(conditionType, "Some")[0], v1alpha1.SeverityError, reason, ""),
		}
		return b
	}
	gone := binding(v1alpha1.ReasonTenantGone, v1alpha1.ConditionConnected)
	gone.Status.Conditions[2] = v1alpha1.False(v1alpha1.ConditionProviderInSync, v1alpha1.SeverityError, "Evil", "")
	secretWith := func(annotations map[string]string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetAnnotations(annotations)
		return u
	}
	behindBy := func(reason klutchsync.Reason, message string) string {
		return ofObjects(named("things.example.com"), []behind.Object{{Reason: string(reason), Message: message}, {Reason: "Other"}})
	}
	template := &v1alpha1.APIServiceExportTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "services", Name: "t"}}
	template.Spec.APIServiceSelector.Group, template.Spec.APIServiceSelector.Resource = "example.com", "things"
	const server = "https://platform.example.com"
	for _, c := range []struct{ what, got, want string }{
		{"wrong CA", ofControlPlane(server, fmt.Errorf("get: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), nil), "The CA of the kubeconfig is not that of the server"},
		{"token revoked", ofControlPlane(server, apierrors.NewUnauthorized("x"), nil), "writes a new token"},
		{"no answer", ofControlPlane(server, errors.New("connection refused"), nil), server + " can be reached from here"},
		{"tenant removed", ofControlPlane(server, nil, nil), "become a tenant anew"},
		{"tenant going", ofControlPlane(server, nil, going), "spec.deletionPolicy of the ClusterBinding. Once the tenant is gone, kubectl bind repair"},
		{"App Cluster that does not take the credential", ofAppCluster(apierrors.NewUnauthorized("x")), "Log in to this cluster again"},
		{"App Cluster that does not answer", ofAppCluster(fmt.Errorf("%w: %w", cluster.ErrAppCluster, io.EOF)), "Look whether it runs"},
		{"App Cluster of another CA", ofAppCluster(x509.UnknownAuthorityError{}), "The CA of the kubeconfig is not that of this server"},
		{"forbidden", ofControlPlane(server, apierrors.NewForbidden(schema.GroupResource{Resource: "clusterbindings"}, "", nil), nil), "Ask the operators"},
		{"foreign CRD", ofBinding(binding(v1alpha1.ReasonForeignCustomResourceDefinition)), "kubectl delete crd things.example.com"},
		{"service withdrawn", ofBinding(binding(v1alpha1.ReasonAPIServiceExportNotFound)), "kubectl bind unbind things.example.com"},
		{"Secret deleted", ofBinding(binding(v1alpha1.ReasonKubeconfigSecretNotFound)), "Run kubectl bind repair URL, with the URL of the platform"},
		{"Secret that is no kubeconfig", ofBinding(binding(v1alpha1.ReasonKubeconfigSecretInvalid)), "see the check secret"},
		{"Secret from a platform", cluster.Repair(secretWith(map[string]string{v1alpha1.BackendAnnotation: "https://p"})), "Run kubectl bind repair"},
		{"Secret by hand", cluster.Repair(secretWith(nil)), "Delete that Secret, then run kubectl bind repair URL"},
		{"copied Secret", cluster.Repair(secretWith(map[string]string{v1alpha1.BackendAnnotation: "https://p", v1alpha1.BoundAnnotation: "true"})), "Delete that Secret"},
		{"claim refused", ofBinding(binding(v1alpha1.ReasonRefusedClaim)), "kubectl bind claims things.example.com"},
		{"backend without rights, at the tenant", ofBinding(binding(v1alpha1.ReasonMissingRights, v1alpha1.ConditionProviderInSync)), "Show the message to the platform's operators"},
		{"unreachable", ofBinding(binding(v1alpha1.ReasonControlPlaneUnreachable)), "see the check control-plane"},
		{"rights taken", ofBinding(binding(v1alpha1.ReasonMissingRights)), "writes the rights anew"},
		{"tenant gone, and what follows", ofObjects(gone, []behind.Object{{Reason: "RelatedConflict"}}), "The tenant is gone, and with it perhaps what these stand for: see the check binding. All of them: kubectl bind status things.example.com"},
		{"tenant gone, after all else", ofBinding(gone), "it asks for a new tenant"},
		{"anything else", ofBinding(binding("Evil")), "kubectl -n klutch-bind describe apiservicebinding things.example.com"},
		{"service namespace gone", behindBy(klutchsync.ReasonForbidden, `cannot patch resource "widgets" in API group "example.org" in the namespace "tenant-team"`), "may be gone on the platform"},
		{"service namespace gone, in other words", behindBy(klutchsync.ReasonForbidden, "no access"), "may be gone on the platform"},
		{"service namespace gone, at a look, in other words", behindBy(klutchsync.ReasonDenied, "read target t/x: no access"), "or the rights in it, may be gone on the platform"},
		{"service namespace gone, at a look", behindBy(klutchsync.ReasonDenied, `read target t/x: widgets.example.org "x" is forbidden: cannot get resource "widgets" in the namespace "t"`), "or the rights in it, may be gone on the platform"},
		{"rights here gone", behindBy(klutchsync.ReasonDenied, `widgets.example.org "x" is forbidden: cannot patch resource "widgets" in the namespace "team"`), "run kubectl bind repair"},
		{
			"instances lost", ofObjects(named("things.example.com"), []behind.Object{{Namespace: "team", Name: "a", Reason: "TargetLost"}, {Namespace: "team", Name: "b", Reason: "TargetLost"}}),
			"To have it made anew, empty, run: kubectl -n team annotate things.example.com a klutch.anynines.com/target-uid- All of them: ",
		},
		{"instance of a cluster-scoped API lost", ofObjects(named("things.example.com"), []behind.Object{{Name: "a", Reason: "TargetLost"}}), "kubectl annotate things.example.com a "},
		{"quota", behindBy(klutchsync.ReasonForbidden, "x"), "A quota, a policy or a right of the platform"},
		{"webhook down", behindBy(klutchsync.ReasonUnavailable, "x"), "webhook of the platform fails"},
		{"namespace gone", behindBy(klutchsync.ReasonMissing, "x"), "bring back what is missing"},
		{"name taken", behindBy(klutchsync.ReasonConflict, "x"), "choose another name"},
		{"cluster lost", behindBy(klutchsync.ReasonConflict, "made in "+klutchsync.OtherCluster), "kubectl bind recover things.example.com"},
		{"stuck finalizer", behindBy(klutchsync.ReasonTerminating, "x"), "finalizers"},
		{"template without kind", ofTemplate(template, v1alpha1.ReasonSchemaMissing, "x"), "kubectl get crd things.example.com. If the service is gone: kubectl -n services delete apiserviceexporttemplate t"},
		{"kind that does not work", ofTemplate(template, v1alpha1.ReasonNotEstablished, "x"), "kubectl describe crd things.example.com"},
		{"backend without rights", ofTemplate(template, v1alpha1.ReasonMissingRights, "x"), "kubectl bind offer things.example.com"},
		{"backend with old roles", ofTemplate(template, v1alpha1.ReasonMissingRights, "the platform operator has to run kubectl apply -k deploy/backend (x)"), "Run the command of the message"},
		{"template in the shadow", ofTemplate(template, v1alpha1.ReasonShadowed, "x"), "kubectl -n services delete apiserviceexporttemplate t"},
		{"unfit template", ofTemplate(template, v1alpha1.ReasonClusterScoped, "x"), "kubectl -n services edit apiserviceexporttemplate t"},
		{"many reasons", ofObjects(named("things.example.com"), []behind.Object{{Reason: "TargetConflict"}, {Reason: "TargetForbidden"}, {Reason: "TargetConflict"}}), "TargetConflict: " + ofReason[klutchsync.ReasonConflict] + " TargetForbidden: " + ofReason[klutchsync.ReasonForbidden] + " All of them"},
		{"one reason", behindBy(klutchsync.ReasonConflict, "x"), "The name is taken"},
		{"all of them", behindBy(klutchsync.ReasonRefused, "x"), "kubectl bind status things.example.com"},
		{"deletion held", behindBy(klutchsync.ReasonHeld, "x"), "leave the objects as they are"},
		{"deletion refused", behindBy(klutchsync.ReasonRefused, "TargetRefused: "+klutchsync.BeingDeleted+"refuses it"), "kubectl bind unbind things.example.com --force"},
		{"name of an earlier object", behindBy(klutchsync.ReasonConflict, "TargetConflict: x was made from "+klutchsync.EarlierObject), "with its data"},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("%s: %q, want %q in it", c.what, c.got, c.want)
		}
	}
}

// The table of deploy/README.md names the commands that doctor does.
func TestAdviceIsThatOfTheGuide(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands, advised := regexp.MustCompile(`kubectl bind \w+`), 0
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)`.*?, `(\\w+)` \\|.*\\| (.*) \\|$").FindAllStringSubmatch(string(data), -1) {
		b := &v1alpha1.APIServiceBinding{}
		b.Status.Conditions = []v1alpha1.Condition{v1alpha1.False(row[1], v1alpha1.SeverityError, row[2], "")}
		advice := ofBinding(b)
		if row[1] == v1alpha1.ConditionClaimsInSync {
			advice = ofClaims(b, row[2])
		}
		for _, command := range commands.FindAllString(advice, -1) {
			if advised++; !strings.Contains(row[3], command) {
				t.Errorf("%s, %s: the table says %q, doctor %q", row[1], row[2], row[3], advice)
			}
		}
	}
	if advised < 4 {
		t.Errorf("%d commands are looked at", advised)
	}
}

// Each reason for which an object is not in step has an advice of its own, but for that of
// objects that are not there, and a row of deploy/README.md with the commands of that advice.
func TestAdviceForEachReason(t *testing.T) {
	data, err := os.ReadFile("../../../sync/result.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`Reason = "(\w+)"`).FindAllSubmatch(data, -1)
	if len(reasons) < 15 {
		t.Fatalf("%d reasons are found", len(reasons))
	}
	guide, err := os.ReadFile("../../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "\n| Reason |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| .* \\| (.*) \\| .* \\|$").FindAllStringSubmatch(table, -1) {
		rows[row[1]] = row[2]
	}
	if len(rows) != strings.Count(table, "\n| `") || len(rows) != len(reasons)+2 || rows[behind.ReasonDeleting] == "" || rows[behind.ReasonNotTakenUp] == "" {
		t.Errorf("the table of deploy/README.md has %d reasons, want %d, and %s and %s", len(rows), len(reasons), behind.ReasonDeleting, behind.ReasonNotTakenUp)
	}
	commands := regexp.MustCompile(`kubectl bind \w+`)
	seen := map[string]string{}
	for _, m := range reasons {
		reason := string(m[1])
		advice := ofObjects(named("things"), []behind.Object{{Reason: reason}})
		if other := seen[advice]; other != "" || strings.HasPrefix(advice, "All of them") && reason != string(klutchsync.ReasonOrphaned) {
			t.Errorf("%s has no advice of its own: %q, %s", reason, advice, other)
		}
		seen[advice] = reason
		row, ok := rows[reason]
		if !ok {
			t.Errorf("the table of deploy/README.md lacks %s", reason)
		}
		for _, command := range commands.FindAllString(ofReason[klutchsync.Reason(reason)], -1) {
			if !strings.Contains(row, command) {
				t.Errorf("%s: the table says %q, doctor %q", reason, row, ofReason[klutchsync.Reason(reason)])
			}
		}
	}
}

// A repair of what does not say from which platform it is takes the URL.
func TestRepairOfTheNameless(t *testing.T) {
	d := &doctor{nameless: map[string]bool{"klutch-bind/kubeconfig": true}}
	const hint = "Run kubectl bind repair: it writes a new token. Or kubectl bind repair URL."
	for about, want := range map[string]string{
		"klutch-bind/kubeconfig": "Run kubectl bind repair URL: it writes a new token. Or kubectl bind repair URL.",
		"klutch-bind/other":      hint,
	} {
		d.note("token", about, "it ends", "", hint)
		if got := d.found[len(d.found)-1].Hint; got != want {
			t.Errorf("%s: %q, want %q", about, got, want)
		}
	}
}

// What was lost and is not taken again is told to be gone, and what keeps it from being made anew.
func TestAdviceOnARefusedReturn(t *testing.T) {
	b := &v1alpha1.APIServiceBinding{}
	lost := string(klutchsync.ReasonVanished) + ": things.example.com svc/a has vanished from the target cluster, with what it held; " + klutchsync.RefusedReturn + "the target cluster "
	for says, want := range map[string]string{
		`does not permit this object: things.example.com "a" is forbidden: exceeded quota`:           "where a quota, a policy or a right is in the way",
		`refuses this object: spec.size: Unsupported value`:                                          "change the object",
		`does not permit this object: cannot patch resource "things" in the namespace "tenant-team"`: "may be gone on the platform",
	} {
		got := ofObjects(b, []behind.Object{{Namespace: "team", Name: "a", Reason: string(klutchsync.ReasonVanished), Message: lost + says}})
		if !strings.Contains(got, want) || !strings.Contains(got, "a backup") {
			t.Errorf("%q says nothing of %q, or of a backup", got, want)
		}
	}
}
