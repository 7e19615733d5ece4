// SPDX-License-Identifier: Apache-2.0

package related

import "testing"

func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		state state
		want  Step
	}{
		"unknown":                      {state{selected: true, taken: true, ours: true, verified: true}, StepWait},
		"not selected, no copy":        {state{seen: true, travels: true}, StepRest},
		"selected, no copy":            {state{seen: true, selected: true, travels: true}, StepCopy},
		"selected, copied":             {state{seen: true, selected: true, travels: true, taken: true, ours: true, settled: true}, StepRest},
		"selected, changed":            {state{seen: true, selected: true, travels: true, taken: true, ours: true}, StepCopy},
		"selected, name taken":         {state{seen: true, selected: true, travels: true, taken: true}, StepConflict},
		"excepted":                     {state{seen: true, travels: true, excepted: true}, StepExcepted},
		"excepted, name taken":         {state{seen: true, travels: true, excepted: true, taken: true}, StepExcepted},
		"excepted since, copied":       {state{seen: true, travels: true, excepted: true, taken: true, ours: true}, StepVerify},
		"not selected, name taken":     {state{seen: true, travels: true, taken: true, verified: true}, StepRest},
		"another type":                 {state{seen: true, selected: true, travels: true, taken: true, ours: true, goes: true}, StepCopy},
		"another type, as read live":   {state{seen: true, selected: true, travels: true, taken: true, ours: true, goes: true, verified: true}, StepDelete},
		"another type, of many":        {state{seen: true, selected: true, travels: true, taken: true, ours: true, goes: true, verified: true, held: true}, StepHold},
		"another type, shared":         {state{seen: true, selected: true, travels: true, taken: true, ours: true, goes: true, verified: true, shared: true}, StepLeave},
		"another type, left":           {state{seen: true, selected: true, travels: true, taken: true, ours: true, theirs: true, stays: true}, StepStay},
		"another type, name taken":     {state{seen: true, selected: true, travels: true, taken: true, goes: true, verified: true}, StepConflict},
		"original gone, says cache":    {state{seen: true, selected: true, taken: true, ours: true}, StepVerify},
		"original gone":                {state{seen: true, selected: true, taken: true, ours: true, verified: true}, StepDelete},
		"reference gone, says cache":   {state{seen: true, travels: true, taken: true, ours: true}, StepVerify},
		"reference gone":               {state{seen: true, travels: true, taken: true, ours: true, verified: true}, StepDelete},
		"original gone, target reads":  {state{seen: true, taken: true, ours: true, read: true, verified: true}, StepWait},
		"another cluster, claimed":     {state{seen: true, taken: true, ours: true, claimed: true}, StepWait},
		"another cluster, copied anew": {state{seen: true, selected: true, travels: true, taken: true, ours: true, claimed: true}, StepCopy},
		"original gone, not our copy":  {state{seen: true, selected: true, taken: true, verified: true}, StepRest},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan(test.state); got != test.want {
				t.Errorf("plan = %q, want %q", got, test.want)
			}
		})
	}
}
