// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

func TestOffer(t *testing.T) {
	no := v1alpha1.False
	for name, tc := range map[string]struct {
		said, before []v1alpha1.Condition
		want         []string
	}{
		"a peer says nothing": {},
		"all is well":         {said: []v1alpha1.Condition{v1alpha1.True("Offered"), v1alpha1.True("ProviderInSync")}},
		"all is well again": {
			said: []v1alpha1.Condition{v1alpha1.True("ProviderInSync")}, before: []v1alpha1.Condition{no("Offered", "Error", "NotOffered", "")},
			want: []string{"Offered=True @0"},
		},
		"withdrawn": {
			said: []v1alpha1.Condition{no("Offered", "Error", "NotOffered", "It is not.")},
			want: []string{"Offered=False NotOffered@0 The provider says: It is not. What was synced stays, and can be deleted as long as its kind is served. " +
				"Ask the operators of Acme for it; everything goes on when it is offered to you again."},
		},
		"P13 the last login is too old": {
			said: []v1alpha1.Condition{no("LoginCurrent", "Error", "LoginTooOld", "log in again with kubectl bind rotate")},
			want: []string{"LoginCurrent=False LoginTooOld@0 The provider says: log in again with kubectl bind rotate. Until a login at Acme nothing is synced once the credential ends."},
		},
		"a change is held": {
			said: []v1alpha1.Condition{no("ProviderInSync", "Warning", "BreakingChangeHeld", "v1 lost a field")},
			want: []string{"ProviderInSync=False BreakingChangeHeld@0 The provider says: v1 lost a field. Its schema and claims stay as they are until the operators of Acme have mended that."},
		},
		"a severity that no API server takes, and no reason": {
			said: []v1alpha1.Condition{no("ProviderInSync", "Catastrophe", "", "")},
			want: []string{"ProviderInSync=False Unknown@0 The provider says: no reason given. Its schema and claims stay as they are until the operators of Acme have mended that."},
		},
		"a message and a reason that do not print": {
			said: []v1alpha1.Condition{no("ProviderInSync", "Warning", "\u202e", "\u202e")},
			want: []string{"ProviderInSync=False Unknown@0 The provider says: no reason given. Its schema and claims stay as they are until the operators of Acme have mended that."},
		},
		"not known": {said: []v1alpha1.Condition{{Type: "Offered", Status: metav1.ConditionUnknown}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pass{verdict: newVerdict(), binding: &v1alpha1.APIServiceBinding{}, export: &v1alpha1.APIServiceExport{}}
			p.verdict.provider = "Acme"
			p.binding.Status.Conditions, p.export.Status.Conditions = tc.before, tc.said
			ok, err := p.checkOffer(t.Context())
			var found []v1alpha1.Condition
			for _, c := range p.verdict.found {
				if c.Status == metav1.ConditionFalse && severity(&c) != c.Severity {
					t.Errorf("severity %q", c.Severity)
				}
				found = append(found, c)
			}
			if diff := cmp.Diff(tc.want, short(found)); err != nil || diff != "" || !ok || p.disabled {
				t.Errorf("ok %t, disabled %t, %v, conditions (-want +got):\n%s", ok, p.disabled, err, diff)
			}
		})
	}
}

// A provider cannot make a status that the App Cluster's API server refuses (P25).
func TestHostileOffer(t *testing.T) {
	long := strings.Repeat("x\x1b[2J\n\u202e", 1<<17)
	p := &pass{verdict: newVerdict(), binding: &v1alpha1.APIServiceBinding{}, export: &v1alpha1.APIServiceExport{}}
	p.verdict.provider = long
	p.export.Status.Conditions = []v1alpha1.Condition{v1alpha1.False("Offered", v1alpha1.Severity(long), long, long)}
	if _, err := p.checkOffer(t.Context()); err != nil {
		t.Fatal(err)
	}
	status := &v1alpha1.APIServiceBindingStatus{}
	p.verdict.apply(status, 1)
	c := v1alpha1.FindCondition(status.Conditions, v1alpha1.ConditionOffered)
	if len(c.Reason)+len(c.Message)+len(c.Severity) > 2*cluster.MaxMessage || !strings.Contains(c.Message, "Ask the operators") {
		t.Errorf("reason of %d, message of %d bytes", len(c.Reason), len(c.Message))
	}
	if n := len(status.ProviderPrettyName); n == 0 || n > cluster.MaxMessage {
		t.Errorf("a provider's name of %d bytes", n)
	}
	for _, said := range []string{c.Reason, c.Message, status.ProviderPrettyName} {
		if strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("it does not print: %.50q", said)
		}
	}
}

// What follows from the provider's failure is not told before it.
func TestProviderFails(t *testing.T) {
	v := newVerdict()
	v.set(v1alpha1.False(v1alpha1.ConditionProviderInSync, v1alpha1.SeverityError, "CRDNotFound", "It is gone."))
	v.set(informersSynced(klutchsync.Status{Err: errors.New("not found")}, v.providerFails()))
	status := &v1alpha1.APIServiceBindingStatus{}
	v.apply(status, 1)
	if c := v1alpha1.FindCondition(status.Conditions, v1alpha1.ConditionReady); c.Reason != "CRDNotFound" {
		t.Errorf("Ready is %+v", c)
	}
	if c := v1alpha1.FindCondition(status.Conditions, v1alpha1.ConditionInformersSynced); c.Message != "Waits for ProviderInSync." {
		t.Errorf("InformersSynced is %+v", c)
	}
}

// What vanished comes back only while the provider offers it: a change of schema that is
// held ends no offer.
func TestWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		export v1alpha1.APIServiceExport
		want   string
	}{
		"offered": {},
		"on its way out": {
			export: v1alpha1.APIServiceExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.org", DeletionTimestamp: &metav1.Time{}}},
			want:   "the provider is taking the APIServiceExport widgets.example.org away",
		},
		"not offered": {
			export: v1alpha1.APIServiceExport{Status: v1alpha1.APIServiceExportStatus{Conditions: []v1alpha1.Condition{v1alpha1.False("Offered", "Error", "NotOffered", "It is not")}}},
			want:   "the provider says: It is not",
		},
		"its CRD has gone": {
			export: v1alpha1.APIServiceExport{Status: v1alpha1.APIServiceExportStatus{Conditions: []v1alpha1.Condition{v1alpha1.False("ProviderInSync", "Error", "CRDNotFound", "")}}},
			want:   "the provider says: CRDNotFound",
		},
		"a change is held": {
			export: v1alpha1.APIServiceExport{Status: v1alpha1.APIServiceExportStatus{Conditions: []v1alpha1.Condition{v1alpha1.False("ProviderInSync", "Warning", "BreakingChangeHeld", "v1 lost a field")}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := notOffered(&tc.export); got != tc.want {
				t.Errorf("notOffered = %q, want %q", got, tc.want)
			}
		})
	}
}
