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
