// SPDX-License-Identifier: Apache-2.0

package related

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/contest"
)

// A record is what a Copier remembers of one object between passes.
type record struct {
	pace       Pace
	contest    contest.Contest // with others that change the copy
	wish, copy string          // what the copy was found to be made from, and its version then
	verified   bool            // that the copy has lost its reason, or goes, has been confirmed live
	shared     bool            // and that another Sync still wants it
	read       bool            // but a target reads it still, as was seen live
	stays      bool            // the original is of a type that does not travel
	goes       departure       // of a copy although it has its original
	held       bool            // its deletion waits for a release
	problem    string
	claims     []cache.ObjectName // that know of the problem
	late       func()             // takes back what was told of a turn that comes late; nil if nothing was
}

// begin forgets a copy that goes; what was told stays until it has gone.
func (r *record) begin() {
	*r = record{pace: r.pace, contest: r.contest, problem: r.problem, claims: r.claims}
}

// A departure is which copy has to go although its original is there, and why; zero if none has.
type departure struct {
	copy types.UID
	why  string
}

// A pair is one original, its copy, and the state that they are in.
type pair struct {
	state
	from      Origin
	name      cache.ObjectName // of the copy
	referrers []cache.ObjectName
	original  metav1.Object
	copy      metav1.Object
}

// wish identifies what the copy is to be made from.
func (p *pair) wish() string {
	if p.original == nil {
		return ""
	}
	return p.wishOf(p.original)
}

// wishOf identifies what a copy of this version of the original is made from: that, and who refers to it.
func (p *pair) wishOf(original metav1.Object) string {
	wish := original.GetResourceVersion()
	if len(p.referrers) > 0 {
		wish += "/" + p.referrers[0].Name
	}
	return wish
}

// ask identifies what an API server is asked of a copy: another thing once there is one.
func (p *pair) ask() string { return fmt.Sprint(p.wish(), " ", p.taken) }
