// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/test/stack"
)

// foreseen stops Klutch's konnector and has the command say what ours would take over: it ends
// with 3 for the Secret whose name is taken, and changes nothing.
func (p *pairing) foreseen(t *testing.T, s *stack.Stack) {
	t.Helper()
	service := p.tenant() + "-" + team
	secret := map[string]any{"data": map[string]any{"password": base64Of([]byte("first"))}}
	kept := p.claimed(p.app, secretsGVR, team, "kept")
	p.claimed(p.control, secretsGVR, service, "kept").create(t, secret)
	kept.has(t, base64Of([]byte("first")), "data", "password")
	p.konnector.stop()
	p.claimed(p.app, secretsGVR, team, "foreign").create(t, secret)
	p.claimed(p.control, secretsGVR, service, "foreign").create(t, secret)

	versions := func() map[string]string {
		all := map[string]string{}
		for _, o := range []place{
			kept, p.claimed(p.app, secretsGVR, team, "foreign"), p.place(p.app, "widgets", team, "anchor"), p.place(p.control, "widgets", service, "anchor"),
		} {
			u, err := o.client().Get(t.Context(), o.name, metav1.GetOptions{})
			o.must(t, err)
			all[o.Name()+" "+o.String()] = u.GetResourceVersion()
		}
		return all
	}
	before := versions()
	at := *s
	at.App = p.app.Cluster
	out := at.Kubectl(t.Context(), nil, "doctor", "--takeover", "-o", "json")
	var found []bind.Finding
	if err := json.Unmarshal([]byte(out.Stdout), &found); err != nil || out.Code != 3 {
		t.Fatalf("exit code %d, %v\n%s%s", out.Code, err, out.Stdout, out.Stderr)
	}
	for _, want := range []struct {
		check string
		ok    bool
		words string
	}{
		{"crd", true, "stays with its objects"},
		{"objects", true, "2 taken over as they are: team/anchor, team/made"},
		{"copies", false, "1 taken over as they are: team/kept"},
		{"copies", false, "team/foreign"},
	} {
		if !slices.ContainsFunc(found, func(f bind.Finding) bool {
			return f.Check == want.check && f.About == "widgets."+p.group && f.OK == want.ok && strings.Contains(f.Message, want.words)
		}) {
			t.Errorf("want %+v in\n%s", want, out.Stdout)
		}
	}
	if diff := cmp.Diff(before, versions()); diff != "" {
		t.Errorf("doctor has changed something (-before +after):\n%s", diff)
	}
}
