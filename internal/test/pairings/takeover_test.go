// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/bind"
)

// foreseen has the command say what our konnector would take over, each object by its name: it
// ends with 3 for the Secret whose name is taken, and changes nothing.
func (e *estate) foreseen(t *testing.T) {
	t.Helper()
	p := e.pairings[0]
	secret := map[string]any{"data": map[string]any{"password": base64Of([]byte("first"))}}
	mine, theirs := p.claimed(e.app, secretsGVR, "shop-0", "foreign"), p.claimed(e.control, secretsGVR, p.tenant+"-shop-0", "foreign")
	mine.create(t, secret)
	theirs.create(t, secret)
	before := e.identities(t)
	said := e.takeover(t, e.app, "s."+p.group)
	said("crd", true, "stays with its objects")
	said("copies", false, "secrets shop-0/foreign: left alone")
	for i := 0; i < len(e.claims); i += 2 { // of this tenant
		said("objects", true, "widgets "+e.claims[i].namespace+"/"+e.claims[i].name+": taken over as they are")
		said("copies", false, "secrets "+e.copies[i].namespace+"/"+e.copies[i].name+": taken over as they are")
	}
	for i := 0; i < len(e.settings); i += 2 {
		said("copies", true, "configmaps "+e.settings[i].namespace+"/settings: taken over as they are")
	}
	if diff := cmp.Diff(before, e.identities(t)); diff != "" {
		t.Errorf("doctor has changed something (-before +after):\n%s", diff)
	}
	mine.delete(t)
	theirs.delete(t)
}

// foreseenThere has the command say at the Control Plane Cluster what would become of each tenant.
// It ends with 3 for the cluster-scoped APIs before these are switched on, as they would be withdrawn.
func (e *estate) foreseenThere(t *testing.T, switchedOn bool) {
	t.Helper()
	before := e.identities(t)
	for _, p := range e.pairings {
		said := e.takeover(t, e.control, p.tenant)
		said("tenant", switchedOn, "APIServiceExport widgets."+p.group+": stays\n")
		if switchedOn {
			stays := ": stays\n"
			if strings.HasPrefix(p.group, byKlutch) { // of templates of Klutch's no backend says so
				stays = ": stays where --prefixed-apis of the backend name it\n"
			}
			said("tenant", true, "APIServiceExport gears."+p.group+stays)
		} else {
			said("tenant", false, "APIServiceExport gears."+p.group+": withdrawn, since it is cluster-scoped and not switched on")
			said("tenant", false, "it would lose gears."+p.group)
		}
		for _, o := range e.objects {
			if tenant, _, _ := e.split(o.namespace); tenant == p.tenant {
				said("tenant", switchedOn, "Namespace "+o.namespace+": stays with what is in it")
			}
		}
		said("tenant", switchedOn, "Secret "+p.tenant+"/klutch-binder: replaced")
		said("tenant", switchedOn, "ClusterRoleBinding klutch-binder-"+p.tenant+": deleted")
	}
	if diff := cmp.Diff(before, e.identities(t)); diff != "" {
		t.Errorf("doctor has changed something (-before +after):\n%s", diff)
	}
}

// takeover runs kubectl bind doctor --takeover, which ends with 3 if one finding is a fault. What it
// returns wants a finding about what ends so, with these words in its message or objects.
func (e *estate) takeover(t *testing.T, at *side, about string) (said func(check string, ok bool, words string)) {
	t.Helper()
	cli := *e.Stack
	cli.App = at.Cluster
	out := cli.Kubectl(t.Context(), nil, "doctor", "--takeover", "-o", "json")
	var found []bind.Finding
	if err := json.Unmarshal([]byte(out.Stdout), &found); err != nil {
		t.Fatalf("exit code %d, %v\n%s%s", out.Code, err, out.Stdout, out.Stderr)
	}
	if faults := slices.ContainsFunc(found, func(f bind.Finding) bool { return !f.OK }); faults != (out.Code == 3) {
		t.Errorf("exit code %d with faults: %t\n%s", out.Code, faults, out.Stdout)
	}
	return func(check string, ok bool, words string) {
		t.Helper()
		if !slices.ContainsFunc(found, func(f bind.Finding) bool {
			return f.Check == check && strings.HasSuffix(f.About, about) && f.OK == ok && strings.Contains(f.Message+"\n"+strings.Join(f.Objects, "\n")+"\n", words)
		}) {
			t.Errorf("want %s, ok: %t, %q in\n%s", check, ok, words, out.Stdout)
		}
	}
}
