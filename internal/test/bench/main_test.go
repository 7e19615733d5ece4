// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		parts []string // nil: refused
	}{
		"everything":    {nil, []string{"throughput", "latency", "namespaces", "writes", "noise", "silence", "large", "refused", "settled", "tenants"}},
		"a part":        {[]string{"-parts=noise", "-singles=10"}, []string{"noise"}},
		"unknown part":  {[]string{"-parts=noise,peace"}, nil},
		"no part":       {[]string{"-parts="}, nil},
		"no objects":    {[]string{"-objects=0"}, nil},
		"no contestant": {[]string{"-be=klutch"}, nil},
		"unknown flag":  {[]string{"-nonsense"}, nil},
		"stray word":    {[]string{"noise"}, nil},
		"several parts": {[]string{"-parts", "latency,writes"}, []string{"latency", "writes"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(tc.args, io.Discard)
			if refused := err != nil; refused != (tc.parts == nil) {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tc.parts, o.parts); err == nil && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOffered(t *testing.T) {
	for resource, want := range map[string][2]string{
		widgets: {"widgets.bench.example.org", "bind-widgets"}, gadgets: {"gadgets.bench.example.org", "bind-gadgets"},
	} {
		objects, err := offered(resource)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, [2]string{objects[0].GetName(), objects[3].GetName()}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resource, diff)
		}
	}
}

func TestTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		parts  []string
		rounds int
		want   []string
	}{
		"one part, one round": {[]string{"latency"}, 1, []string{"latency klutch 0", "latency sync 0", "latency rights 0", "latency ideal 0"}},
		"in turned order": {[]string{"latency"}, 2, []string{
			"latency klutch 0", "latency sync 0", "latency rights 0", "latency ideal 0",
			"latency ideal 1", "latency rights 1", "latency sync 1", "latency klutch 1",
		}},
		"once and last": {[]string{"settled", "writes"}, 2, []string{"writes klutch 0", "writes ideal 0", "settled klutch 0"}},
		"limited":       {[]string{"throughput"}, 1, []string{"throughput klutch 0", "throughput sync 0", "throughput rights 0", "throughput ideal 0", "throughput limited 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, turn := range (options{parts: tc.parts, rounds: tc.rounds}).turns() {
				got = append(got, fmt.Sprint(turn.part.name, " ", turn.who, " ", turn.round))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
