// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/sync/internal/contest"
)

// A record is what a Sync remembers of one object between passes: nothing that
// it could not do without, as it has to after a restart.
type record struct {
	answers  answers
	proofs   proofs
	refusals refusals
	drift    drift
	status   sourceStatus
}

// answers are what API servers said to our writes, as long as the caches have not seen it.
type answers struct {
	source, target         *unstructured.Unstructured
	lookSource, lookTarget bool      // an outcome is uncertain: read live
	listed                 int       // as of which list of sources source is an answer
	gone                   types.UID // of the target that was seen to end in this pass
	looked                 time.Time // live, because the source is being deleted
}

// proofs are what was read live.
type proofs struct {
	since     uint64    // as of when the clusters have to be confirmed
	confirmed bool      // they have been since
	source    types.UID // of the source, once read live or given our finalizer
	orphan    *orphan   // nil unless the target seems to have lost its source
}

// refusals are what API servers do not take.
type refusals struct {
	intent   *refusal
	status   *refusal
	fields   *heldFields
	deletion *refusal // of the target
	access   string   // what is not permitted of the object
}

// next is when what was refused is asked again.
func (r *refusals) next() time.Time {
	if r.deletion != nil {
		return r.deletion.next
	}
	return r.intent.next
}

// A refusal is the answer of an API server that it does not take an intent or a
// status.
type refusal struct {
	reason Reason
	hash   string
	detail string
	next   time.Time
	listed int // of the side that refused
}

// HeldFields are the answer that fields of an intent are someone else's.
type heldFields struct {
	hash    string
	version string // of the target
	detail  string
}

// drift is what tells a target that others have changed from one that they have not.
type drift struct {
	applied  string    // hash of what the target was last seen to be made from, when it was what we wanted
	accepted string    // what we held of the target when an apply was last accepted or found to be in force
	listed   int       // as of which list of targets that was
	target   types.UID // of that target
	judged   string    // what was known of a changed target when it was last read live
	contest  contest.Contest
}

// A sourceStatus is what was written for the users of the source.
type sourceStatus struct {
	sent, got string // hashes of the last status sent, and of what became of it
	listed    int    // as of which list of sources that was
	pace      pace
	digest    uint32 // of what in that status users wait for
	messages  pace
	reported  Reason
	contest   contest.Contest
	types     unique.Handle[string] // of the conditions that came of the last status sent
	others    []string              // types of conditions that others have added since
}
