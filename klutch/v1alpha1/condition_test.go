// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestSummarize(t *testing.T) {
	for name, c := range map[string]struct {
		in   []v1alpha1.Condition
		want v1alpha1.Condition
	}{
		"all true": {
			in:   []v1alpha1.Condition{v1alpha1.True("B"), v1alpha1.True("A")},
			want: v1alpha1.True("Ready"),
		},
		"an error beats a warning": {
			in:   []v1alpha1.Condition{v1alpha1.False("A", v1alpha1.SeverityWarning, "W", "w"), v1alpha1.False("B", v1alpha1.SeverityError, "E", "e")},
			want: v1alpha1.False("Ready", v1alpha1.SeverityError, "E", "e"),
		},
		"info beats true": {
			in:   []v1alpha1.Condition{v1alpha1.True("A"), v1alpha1.False("B", v1alpha1.SeverityInfo, "I", "i")},
			want: v1alpha1.False("Ready", v1alpha1.SeverityInfo, "I", "i"),
		},
		"true beats unknown": {
			in:   []v1alpha1.Condition{v1alpha1.Unknown("A", "U", "u"), v1alpha1.True("B")},
			want: v1alpha1.True("Ready"),
		},
		"of equals the first by type": {
			in:   []v1alpha1.Condition{v1alpha1.False("Z", v1alpha1.SeverityError, "ZE", "z"), v1alpha1.False("C", v1alpha1.SeverityError, "CE", "c")},
			want: v1alpha1.False("Ready", v1alpha1.SeverityError, "CE", "c"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := v1alpha1.FindCondition(v1alpha1.Summarize(c.in, 0), v1alpha1.ConditionReady)
			if got == nil {
				t.Fatal("no Ready")
			}
			c.want.LastTransitionTime = got.LastTransitionTime
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Errorf("Ready (-want +got):\n%s", diff)
			}
		})
	}
	if got := v1alpha1.Summarize(nil, 1); got != nil {
		t.Errorf("Summarize without conditions = %v, want none", got)
	}
}

func TestSetConditionKeepsTimeAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now().UTC().Truncate(time.Second)
		all := v1alpha1.SetCondition(nil, v1alpha1.True("Zeta"))
		all = v1alpha1.SetCondition(all, v1alpha1.False("Alpha", v1alpha1.SeverityError, "Why", "because"))
		all = v1alpha1.Summarize(all, 3)
		time.Sleep(time.Hour)
		before := all
		all = v1alpha1.SetCondition(all, v1alpha1.True("Zeta"))
		all = v1alpha1.SetCondition(all, v1alpha1.False("Alpha", v1alpha1.SeverityError, "Why", "another message"))
		var types []string
		for _, c := range all {
			types = append(types, c.Type)
		}
		if diff := cmp.Diff([]string{"Ready", "Alpha", "Zeta"}, types); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if got := v1alpha1.FindCondition(all, "Zeta").LastTransitionTime; !got.Time.Equal(start) {
			t.Errorf("an equal condition moved its time to %v", got)
		}
		if got := v1alpha1.FindCondition(all, "Alpha").LastTransitionTime; !got.Time.Equal(start.Add(time.Hour)) {
			t.Errorf("a changed condition has time %v", got)
		}
		if got := v1alpha1.FindCondition(before, "Alpha").Message; got != "because" {
			t.Errorf("SetCondition changed its argument: %q", got)
		}
	})
}
