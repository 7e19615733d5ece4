// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// hooks are those of a Sync of binding.
func (k *Konnector) hooks(binding string, next func(context.Context, klutchsync.Result)) klutchsync.Hooks {
	opts := klutchsync.Options{Hooks: klutchsync.Hooks{Done: next}}
	k.Sync(binding, &opts)
	return opts.Hooks
}

func pass(name string, err error, steps ...string) klutchsync.Result {
	return klutchsync.Result{Source: cache.NewObjectName("team", name), Steps: steps, Err: err, Took: 2 * time.Millisecond}
}

func report(name string, why klutchsync.Reason) klutchsync.Report {
	return klutchsync.Report{Source: cache.NewObjectName("team", name), Reason: why}
}

func stands(why klutchsync.Reason) error {
	return &klutchsync.ObjectError{Reason: why, Message: "secret"}
}

// lines are those of a scrape that count something.
func lines(text string, prefixes ...string) string {
	var kept []string
	for line := range strings.Lines(text) {
		is := func(prefix string) bool { return strings.HasPrefix(line, prefix) }
		never := is("klutch_sync_passes_total") && strings.HasSuffix(line, " 0\n")
		if slices.ContainsFunc(prefixes, is) && !never {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

const leader = `klutch_bindings{ready="false"} 1
klutch_bindings{ready="true"} 2
klutch_build_info{commit="",version="v1.2.3"} 1
klutch_control_plane_up{resource="gadgets.example.org"} 0
klutch_control_plane_up{resource="widgets.example.org"} 1
klutch_heartbeat_age_seconds{resource="widgets.example.org"} 40
klutch_sync_objects{resource="gadgets.example.org",state="blocked"} 0
klutch_sync_objects{resource="gadgets.example.org",state="held"} 0
klutch_sync_objects{resource="gadgets.example.org",state="known"} 0
klutch_sync_objects{resource="gadgets.example.org",state="orphaned"} 0
klutch_sync_objects{resource="widgets.example.org",state="blocked"} 2
klutch_sync_objects{resource="widgets.example.org",state="held"} 2
klutch_sync_objects{resource="widgets.example.org",state="known"} 9
klutch_sync_objects{resource="widgets.example.org",state="orphaned"} 1
klutch_sync_pass_duration_seconds_count{resource="gadgets.example.org"} 1
klutch_sync_pass_duration_seconds_count{resource="widgets.example.org"} 9
klutch_sync_passes_total{action="create",resource="widgets.example.org",result="ok"} 1
klutch_sync_passes_total{action="delete",resource="widgets.example.org",result="retried"} 1
klutch_sync_passes_total{action="mark",resource="widgets.example.org",result="blocked"} 4
klutch_sync_passes_total{action="none",resource="gadgets.example.org",result="blocked"} 1
klutch_sync_passes_total{action="none",resource="widgets.example.org",result="ok"} 2
klutch_sync_passes_total{action="status",resource="widgets.example.org",result="ok"} 1
klutch_token_expiry_seconds{resource="widgets.example.org"} 600
`

func TestKonnector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKonnector("v1.2.3")
		heard := 0
		widgets := k.hooks("widgets.example.org", func(context.Context, klutchsync.Result) { heard++ })
		for _, p := range []klutchsync.Result{
			pass("one", nil, "confirm", "add-finalizer", "create", "mark"),
			pass("one", nil, "look-source"), pass("one", nil, "status"), pass("one", errors.New("no answer"), "confirm", "delete"),
			pass("two", stands(klutchsync.ReasonConflict), "set-message"), pass("three", stands(klutchsync.ReasonRefused), "set-message"), pass("three", nil),
			pass("four", stands(klutchsync.ReasonHeld), "set-message"), pass("five", stands(klutchsync.ReasonOrphaned), "set-message"),
		} {
			widgets.Done(t.Context(), p)
		}
		for _, r := range []klutchsync.Report{
			report("two", klutchsync.ReasonConflict), report("three", klutchsync.ReasonRefused), report("three", ""),
			report("four", klutchsync.ReasonHeld), report("five", klutchsync.ReasonOrphaned),
			report("seven", klutchsync.ReasonUnavailable), report("seven", klutchsync.ReasonRefused), // of which there was no pass yet
		} {
			widgets.Reported(t.Context(), r)
		}
		// Its Sync has ended, and with it its blocked objects.
		gadgets := k.hooks("gadgets.example.org", nil)
		gadgets.Done(t.Context(), pass("six", stands(klutchsync.ReasonRefused)))
		gadgets.Reported(t.Context(), report("six", klutchsync.ReasonRefused))
		all, leads := []bind.Bound{
			{
				Name: "widgets.example.org", Ready: true, Up: true, TokenEnds: time.Now().Add(time.Hour), Heartbeat: time.Now().Add(-time.Second),
				Sync: klutchsync.Status{Synced: true, Objects: 9, Held: 2, Orphans: 1},
			},
			{ // that of another namespace, for which there is no second Sync
				Name: "widgets.example.org", Ready: true, Up: true, TokenEnds: time.Now().Add(10 * time.Minute), Heartbeat: time.Now().Add(-40 * time.Second),
			},
			{Name: "gadgets.example.org"},
		}, false
		k.Watch(func() ([]bind.Bound, bool) { return all, leads })
		names := []string{"klutch_build_info", "klutch_sync_pass"}
		if diff := cmp.Diff(lines(leader, names...), lines(scrape(t, k), names...)); diff != "" {
			t.Errorf("follower (-want +got):\n%s", diff)
		}
		leads = true
		if diff := cmp.Diff(leader, lines(scrape(t, k), "klutch_")); diff != "" {
			t.Errorf("leader (-want +got):\n%s", diff)
		}
		if heard != 9 {
			t.Errorf("%d passes passed on", heard)
		}
	})
}

// A user who may write bindings, or names of objects, must not fill a scraper's storage.
func TestKonnectorLabels(t *testing.T) {
	k := NewKonnector("v1.2.3")
	var all []bind.Bound
	for n := range 3 * maxResources {
		all = append(all, bind.Bound{Name: fmt.Sprintf("r%d.example.org", n), Up: n != 2*maxResources, Sync: klutchsync.Status{Objects: 2}})
		hooks := k.hooks(all[n].Name, nil)
		hooks.Done(t.Context(), pass("a", stands(klutchsync.ReasonConflict)))
		hooks.Reported(t.Context(), report("a", klutchsync.ReasonConflict))
	}
	k.Watch(func() ([]bind.Bound, bool) { return all, true })
	text := scrape(t, k)
	got := lines(text, `klutch_control_plane_up{resource="other"`, `klutch_sync_objects{resource="other"`, `klutch_sync_passes_total{action="none",resource="other"`)
	const want = `klutch_control_plane_up{resource="other"} 0
klutch_sync_objects{resource="other",state="blocked"} 200
klutch_sync_objects{resource="other",state="held"} 0
klutch_sync_objects{resource="other",state="known"} 400
klutch_sync_objects{resource="other",state="orphaned"} 0
klutch_sync_passes_total{action="none",resource="other",result="blocked"} 200
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := strings.Count(text, "klutch_control_plane_up{"); n != maxResources+1 {
		t.Errorf("%d resources", n)
	}
	if strings.Contains(text, "team") || strings.Contains(text, "secret") {
		t.Error("an object is named")
	}
}

// Passes are many, and mostly about nothing.
func TestKonnectorAllocatesNothing(t *testing.T) {
	k := NewKonnector("v1.2.3")
	done := k.hooks("widgets.example.org", nil).Done
	for name, p := range map[string]klutchsync.Result{
		"nothing to do": pass("one", nil),
		"created":       pass("two", nil, "add-finalizer", "create"),
		"blocked":       pass("three", stands(klutchsync.ReasonConflict)),
		"retried":       pass("four", errors.New("no answer")),
	} {
		if n := testing.AllocsPerRun(100, func() { done(t.Context(), p) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// A step that package sync adds has to be given a meaning here, or to be one that
// writes nothing.
func TestEveryStepHasAnAction(t *testing.T) {
	plan, err := os.ReadFile("../../sync/plan.go")
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile(`\tstep\w+ +step = "([\w-]+)"`).FindAllStringSubmatch(string(plan), -1)
	writes := 0
	for _, step := range steps {
		if slices.Contains([]string{"wait", "look-source", "look-target", "confirm", "prove"}, step[1]) {
			continue
		}
		writes++
		if action(step[1:]) == 0 {
			t.Errorf("step %s has no action", step[1])
		}
	}
	if writes != len(actionOf) {
		t.Errorf("%d steps write, and %d have an action", writes, len(actionOf))
	}
}

// README and the konnector's guide name the annotation, the condition and the metric of objects that
// are not in step as the code does.
func TestGuidesNameWhatIsNotInStep(t *testing.T) {
	k := NewKonnector("")
	k.hooks("widgets.example.org", nil).Reported(t.Context(), report("one", klutchsync.ReasonRefused))
	k.Watch(func() ([]bind.Bound, bool) {
		return []bind.Bound{{Name: "widgets.example.org", Sync: klutchsync.Status{Objects: 1}}}, true
	})
	counts := regexp.MustCompile(`(\w+)\{resource="widgets.example.org",(state="\w+")\} 1\n`).FindAllStringSubmatch(scrape(t, k), -1)
	var series []string
	for _, s := range counts {
		if s[2] != `state="known"` {
			series = append(series, s[1]+"{"+s[2]+"}")
		}
	}
	for page, names := range map[string][]string{
		"README.md":        append([]string{klutchsync.MessageAnnotation}, series...),
		"deploy/README.md": append([]string{klutchsync.MessageAnnotation, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced}, series...),
	} {
		text, err := os.ReadFile("../../" + page)
		if err != nil || len(series) != 1 {
			t.Fatal(err, series)
		}
		for _, name := range names {
			if !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("%s does not name %s", page, name)
			}
		}
		sentence := regexp.MustCompile(`annotation\s+.` + regexp.QuoteMeta(klutchsync.MessageAnnotation) + `.\s+and in an Event`)
		if !sentence.Match(text) {
			t.Errorf("%s does not name the Event", page)
		}
	}
}
