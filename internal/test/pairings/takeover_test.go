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
	out := e.Kubectl(t.Context(), nil, "doctor", "--takeover", "-o", "json")
	var found []bind.Finding
	if err := json.Unmarshal([]byte(out.Stdout), &found); err != nil || out.Code != 3 {
		t.Fatalf("exit code %d, %v\n%s%s", out.Code, err, out.Stdout, out.Stderr)
	}
	said := func(check string, ok bool, words string) {
		t.Helper()
		if !slices.ContainsFunc(found, func(f bind.Finding) bool {
			return f.Check == check && strings.HasSuffix(f.About, "s."+p.group) && f.OK == ok && strings.Contains(f.Message+strings.Join(f.Objects, "\n"), words)
		}) {
			t.Errorf("want %s, ok: %t, %q in\n%s", check, ok, words, out.Stdout)
		}
	}
	said("crd", true, "stays with its objects")
	said("copies", false, "shop-0/foreign: left alone")
	for i := 0; i < len(e.claims); i += 2 { // of this tenant
		said("objects", true, e.claims[i].namespace+"/"+e.claims[i].name+": taken over as they are")
		said("copies", false, e.copies[i].namespace+"/"+e.copies[i].name+": taken over as they are")
	}
	if diff := cmp.Diff(before, e.identities(t)); diff != "" {
		t.Errorf("doctor has changed something (-before +after):\n%s", diff)
	}
	mine.delete(t)
	theirs.delete(t)
}
