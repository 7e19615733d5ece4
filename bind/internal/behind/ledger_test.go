// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func report(reason klutchsync.Reason) klutchsync.Report {
	r := klutchsync.Report{Source: cache.NewObjectName("shop", "orders"), UID: "one", Reason: reason}
	if reason != "" {
		r.Message = string(reason) + ": quota"
	}
	return r
}

// Each row is a history of one object, a second between two reports, and the Events that
// come of it.
func TestEventsOfAnObject(t *testing.T) {
	gone, known := klutchsync.Report{Source: cache.NewObjectName("shop", "orders")}, report(klutchsync.ReasonForbidden)
	known.Told = true
	another := report(klutchsync.ReasonForbidden)
	another.Message = "TargetForbidden: policy"
	later := another
	later.Message = "TargetForbidden: webhook"
	const rest = 10 // seconds
	for name, c := range map[string]struct {
		reports []klutchsync.Report
		want    []string
	}{
		"nothing":            {reports: []klutchsync.Report{report("")}},
		"it lasts":           {reports: []klutchsync.Report{report(klutchsync.ReasonForbidden)}, want: []string{"Warning TargetForbidden quota"}},
		"it passes":          {reports: []klutchsync.Report{report(klutchsync.ReasonForbidden), report("")}},
		"the reason changes": {reports: []klutchsync.Report{report(klutchsync.ReasonForbidden), report(klutchsync.ReasonConflict)}, want: []string{"Warning TargetConflict quota"}},
		"the reason changes again and again": {
			reports: append(slices.Repeat([]klutchsync.Report{report(klutchsync.ReasonForbidden), report(klutchsync.ReasonConflict)}, 6), report("")),
			want:    []string{"Warning TargetConflict quota", "Normal InStep Nothing keeps this object from being in step any more."},
		},
		"a second cause":        {reports: []klutchsync.Report{known, another}, want: []string{"Warning TargetForbidden policy"}},
		"only the last cause":   {reports: []klutchsync.Report{known, another, later}, want: []string{"Warning TargetForbidden webhook"}},
		"a restart is no news":  {reports: []klutchsync.Report{known}},
		"nor what follows it":   {reports: []klutchsync.Report{known, report(klutchsync.ReasonForbidden)}},
		"it ends after a start": {reports: []klutchsync.Report{known, report("")}, want: []string{"Normal InStep Nothing keeps this object from being in step any more."}},
		"the object goes":       {reports: []klutchsync.Report{known, gone}},
		"lost and made anew": {reports: []klutchsync.Report{report(klutchsync.ReasonVanished), report("")}, want: []string{
			"Warning TargetRecreated What stood for this object in the Control Plane Cluster had vanished, with what it held, and was made anew, empty. TargetRecreated",
		}},
		"lost":                  {reports: []klutchsync.Report{report(klutchsync.ReasonLost)}, want: []string{"Warning TargetLost quota TargetLost"}},
		"lost before a restart": {reports: []klutchsync.Report{{Source: known.Source, UID: known.UID, Reason: klutchsync.ReasonLost, Told: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := NewLedger(func() {}), noon
			var got []string
			look := func() {
				news, _ := l.News(now)
				for _, n := range news {
					got = append(got, strings.TrimSpace(n.Type+" "+n.Reason+" "+n.Message+" "+n.Lost))
				}
			}
			for _, r := range c.reports {
				l.note(r, now)
				now = now.Add(time.Second)
				look()
			}
			for range rest {
				now = now.Add(time.Second)
				look()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each reason of package sync makes an Event of its name and is counted, but the one of objects
// that are not there.
func TestEachReasonIsTold(t *testing.T) {
	source, err := os.ReadFile("../../../sync/result.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "(\w+)"`).FindAllSubmatch(source, -1)
	if len(reasons) < 19 {
		t.Fatalf("found %d reasons", len(reasons))
	}
	for _, match := range reasons {
		reason := klutchsync.Reason(match[1])
		l := NewLedger(func() {})
		l.note(report(reason), noon)
		news, _ := l.News(noon.Add(grace))
		c, _ := l.Condition("widgets", noon.Add(grace))
		told := len(news) == 1 && news[0].Type == "Warning" && news[0].Reason == string(reason) && news[0].Message == "quota"
		counted := strings.HasPrefix(c.Message, "1 not in step: 1 "+string(reason)+".")
		if want := reason != klutchsync.ReasonOrphaned; told != want || counted != want {
			t.Errorf("%s: %+v, %+v", reason, news, c)
		}
	}
}

// Numbers change every few seconds at most; Events come at a pace of their own, and none
// is lost.
func TestManyObjects(t *testing.T) {
	woken := 0
	l, now := NewLedger(func() { woken++ }), noon
	const many = 250
	for i := range many {
		r := report(klutchsync.ReasonForbidden)
		r.Source.Name = strconv.Itoa(i)
		if i%5 == 0 {
			r.Reason = klutchsync.ReasonConflict
		}
		if l.note(r, now) {
			l.wake()
		}
	}
	if c, again := l.Condition("widgets", now); c.Status != metav1.ConditionTrue || again <= 0 || woken != 1 {
		t.Errorf("at once: %+v, again in %s, woken %d times", c, again, woken)
	}
	now = now.Add(grace)
	c, _ := l.Condition("widgets", now)
	if c.Message != "250 not in step: 200 TargetForbidden, 50 TargetConflict. kubectl bind status widgets lists them." || Count(&c) != many {
		t.Errorf("%+v, %d", c, Count(&c))
	}
	l.note(klutchsync.Report{Source: cache.NewObjectName("shop", "7")}, now)
	if c, again := l.Condition("widgets", now); Count(&c) != many || again != countEvery {
		t.Errorf("the next number comes in %s: %+v", again, c)
	}
	if c, _ := l.Condition("widgets", now.Add(countEvery)); Count(&c) != many-1 {
		t.Errorf("after that: %+v", c)
	}
	first, again := l.News(now)
	if len(first) == 0 || len(first) > 110 || again <= 0 {
		t.Errorf("%d Events at once, again in %s", len(first), again)
	}
	if left := len(l.pending); left != many-1-len(first) {
		t.Errorf("%d wait for their Event", left)
	}
}

// Events that no Sync reports are made at the pace of all, and none is lost.
func TestTell(t *testing.T) {
	woken := 0
	l := NewLedger(func() { woken++ })
	const many = 250
	all := make([]News, many)
	for i := range all {
		all[i] = News{Object: cache.NewObjectName("shop", strconv.Itoa(i)), Type: "Warning", Reason: "TenantGone"}
	}
	l.Tell(all)
	told, again := l.News(noon)
	if woken != 1 || len(told) == 0 || len(told) > 110 || again <= 0 || len(told)+len(l.more) != many {
		t.Errorf("woken %d times, %d Events at once, %d left, again in %s", woken, len(told), len(l.more), again)
	}
	if diff := cmp.Diff(all[:len(told)], told); diff != "" {
		t.Error(diff)
	}
}
