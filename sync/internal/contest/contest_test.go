// SPDX-License-Identifier: Apache-2.0

package contest

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What is written again waits ever longer, and what is new does not wait.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Contest{}
		writes := func(d time.Duration) (n int) {
			for end := time.Now().Add(d); time.Now().Before(end); n++ {
				time.Sleep(c.Pause("a") + 10*time.Millisecond)
				c.Wrote("a")
			}
			return n
		}
		if n := writes(time.Minute); n > 8 {
			t.Errorf("%d writes in the first minute", n)
		}
		if n := writes(24 * time.Hour); n > 24*12+5 {
			t.Errorf("%d writes in a day", n)
		}
		if !c.Told() || c.Pause("b") > 0 {
			t.Errorf("told: %t, another wish waits for %v", c.Told(), c.Pause("b"))
		}
		c.Wrote("b")
		if c.Pause("b") != lastPause {
			t.Errorf("after another wish the fight goes on after %v", c.Pause("b"))
		}
		time.Sleep(c.Peace() + time.Second)
		if c.Told() {
			t.Error("a contest that is over is remembered")
		}
		if c.Wrote("b"); c.Pause("b") != firstPause {
			t.Errorf("a new contest begins with a pause of %v", c.Pause("b"))
		}
	})
}

// Once in a while it is no contest to take what others share; more often it is.
func TestTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			before func(*Contest)
			pause  time.Duration
		}{
			"after the first write":      {func(c *Contest) { c.Wrote("a") }, 0},
			"of what was just made":      {func(c *Contest) { c.Made("a") }, 0},
			"as the first write":         {func(*Contest) {}, 0},
			"again":                      {func(c *Contest) { c.Wrote("a"); c.Took("a") }, firstPause},
			"again after a while":        {func(c *Contest) { c.Wrote("a"); c.Took("a"); time.Sleep(peace + time.Second) }, 0},
			"in the middle of a contest": {func(c *Contest) { c.Wrote("a"); c.Wrote("a") }, 2 * firstPause},
		} {
			c := &Contest{}
			test.before(c)
			if c.Took("a"); c.Pause("a") != test.pause {
				t.Errorf("%s: a pause of %v, want %v", name, c.Pause("a"), test.pause)
			}
			if c.Took("b"); c.Pause("b") > 0 {
				t.Errorf("%s: what is taken for another wish has that wait for %v", name, c.Pause("b"))
			}
			again := c.again
			if c.Wrote("b"); c.again != again {
				t.Errorf("%s: what is written for the first time counts as the %dth time after %d", name, c.again, again)
			}
		}
	})
}

func TestRivals(t *testing.T) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"W","metadata":{"name":"a","managedFields":[
		{"manager":"us","operation":"Apply","fieldsV1":{"f:spec":{"f:color":{},"f:ports":{"k:{\"name\":\"x\"}":{".":{},"f:name":{}}}}}},
		{"manager":"composer","operation":"Update","fieldsV1":{"f:spec":{"f:size":{},"f:color":{},"f:late":{},"f:ports":{"k:{\"name\":\"x\"}":{"f:port":{}}}}}},
		{"manager":"composer","operation":"Update","subresource":"status","fieldsV1":{"f:status":{}}},
		{"manager":"other","operation":"Apply","fieldsV1":{"f:metadata":{"f:labels":{"f:x":{}}}}}]}}`), u); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"metadata": map[string]any{"name": "a", "labels": map[string]any{"x": "1"}},
		"spec":     map[string]any{"size": "small", "color": "red", "ports": []any{map[string]any{"name": "x", "port": int64(1)}}},
	}
	if got := Rivals(u, "us", want); got != " by composer (.spec.ports, .spec.size), other (.metadata.labels.x)" {
		t.Errorf("rivals are %q", got)
	}
	if got := Rivals(u, "us", map[string]any{"spec": map[string]any{"color": "red"}}); got != "" {
		t.Errorf("rivals are %q", got)
	}
}
