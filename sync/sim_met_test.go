// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// A meeting is of what a konnector asked a side for, and the answer that it got, by its number in
// simAnswers; after says that what was asked for had been done.
type meeting struct {
	side   int
	asks   string
	answer int
	after  bool
}

// met counts meetings.
type met map[meeting]int

// String is one line for each meeting, which add reads.
func (m met) String() string {
	var out strings.Builder
	for k, n := range m {
		fmt.Fprintf(&out, "met %d %d %t %d %s\n", k.side, k.answer, k.after, n, k.asks)
	}
	return out.String()
}

// add adds what a process printed.
func (m met) add(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		var k meeting
		var n int
		var verb, resource string
		if _, err := fmt.Sscanf(line, "met %d %d %t %d %s %s", &k.side, &k.answer, &k.after, &n, &verb, &resource); err == nil {
			k.asks = verb + " " + resource
			m[k] += n
		}
	}
}

// wanted is all that konnectors ask for, by side.
var wanted = [2][]string{
	{
		"list widgets", "watch widgets", "get widgets", "patch widgets", "apply widgets/status", "get namespaces", "get customresourcedefinitions", "get openapi",
		"list secrets", "watch secrets", "get secrets", "apply secrets", "delete secrets",
	},
	{
		"list widgets", "watch widgets", "get widgets", "apply widgets", "patch widgets", "delete widgets", "get namespaces", "get openapi", "get apis",
		"list secrets", "watch secrets", "get secrets", "apply secrets", "delete secrets",
	},
}

// rarely is the request that too few histories have to meet each error: a patch that takes away maps
// and lists of a status that have become empty.
const rarely = "patch widgets/status"

// unmet is what does not meet each error in a thousand histories, but in many: copies are looked at and
// written, targets and copies deleted, and lost targets made anew, by few of them.
var unmet = []string{"get apis", "apply secrets", "delete secrets", "source get secrets", "target patch widgets", "target delete widgets"}

// unmetApart is the same of answers that are drawn apart, which fewer histories have.
var unmetApart = []string{"watch widgets", "list secrets", "watch secrets", "get secrets", "get openapi", "get namespaces", "get customresourcedefinitions"}

// many are so many histories that each request meets each error in them.
const many = 12_000

// check fails for each error of the table that a request of konnectors never met in a number of
// histories, and can: an API server's "not found" to a read, say, is no error but the truth. In many
// histories each write is done, too, beside each error that leaves that open.
func (m met) check(t *testing.T, histories uint64) {
	t.Helper()
	spared := func(asked string, side, answer int) bool {
		return histories < many && (slices.Contains(unmet, asked) || slices.Contains(unmet, sideName(side)+" "+asked) || answer >= drawnAnswers && slices.Contains(unmetApart, asked))
	}
	for side, asks := range wanted {
		for _, asked := range asks {
			verb, resource, _ := strings.Cut(asked, " ")
			resource, subresource, _ := strings.Cut(resource, "/")
			request := fakecluster.Request{Verb: verb, Resource: schema.GroupVersionResource{Resource: resource}, Subresource: subresource}
			for n, a := range simAnswers {
				same := func(b fakecluster.Answer) bool { return b.Err(request).Error() == a.Err(request).Error() }
				if !a.Gives(request) || slices.ContainsFunc(simAnswers[:n], same) || spared(asked, side, n) {
					continue
				}
				done := m[meeting{side, asked, n, true}]
				if done+m[meeting{side, asked, n, false}] == 0 {
					t.Errorf("%s %s was never answered with %v (%d)", sideName(side), asked, a.Err(request), n)
				} else if histories >= many && !reads(verb) && lateAnswer(n) && done == 0 {
					t.Errorf("%s %s was never done and answered with %v (%d)", sideName(side), asked, a.Err(request), n)
				}
			}
		}
	}
	for k := range m {
		if !slices.Contains(wanted[k.side], k.asks) && k.asks != rarely {
			t.Errorf("%s %s is not among what konnectors are known to ask for", sideName(k.side), k.asks)
		}
	}
}
