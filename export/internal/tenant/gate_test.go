// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClosedGates(t *testing.T) {
	g := &gates{opts: &Options{Gates: []string{"quota", "policy"}}}
	for name, test := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"none said":       {nil, []string{"policy", "quota"}},
		"one is open":     {map[string]string{"gate.klutch.anynines.com/quota": "open"}, []string{"policy"}},
		"all are open":    {map[string]string{"gate.klutch.anynines.com/quota": "open", "gate.klutch.anynines.com/policy": "open"}, []string{}},
		"other value":     {map[string]string{"gate.klutch.anynines.com/quota": "true", "gate.klutch.anynines.com/policy": "open"}, []string{"quota"}},
		"for this tenant": {map[string]string{"gate.klutch.anynines.com/quota": "open", "gate.klutch.anynines.com/policy": "open", "gate.klutch.anynines.com/debt": "closed"}, []string{"debt"}},
	} {
		if diff := cmp.Diff(test.want, g.closed(test.annotations)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if err := CheckGates([]string{"no spaces"}); err == nil {
		t.Error("a gate that no annotation can open was accepted")
	}
}
