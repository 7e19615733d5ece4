// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/export"
)

func TestLimits(t *testing.T) {
	f, err := parse([]string{
		"--max-tenants", "1", "--max-clusters-per-identity", "2", "--max-namespaces-per-tenant", "3", "--max-objects-per-namespace", "-1",
		"--removals-at-once", "4", "--gate", "quota", "--gate", "contract",
	}, noenv, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	o := f.backend.Options
	got := map[string]any{"caps": o.Caps, "removals": o.RemovalsAtOnce, "gates": o.Gates}
	want := map[string]any{
		"caps": export.Caps{Tenants: 1, PerIdentity: 2, Namespaces: 3, Objects: -1}, "removals": 4, "gates": []string{"quota", "contract"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
