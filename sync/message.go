// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/sync/internal/loss"
	"github.com/klutch-go/sdk/sync/internal/names"
)

// obstacle is what keeps the object from being in step, if anything does.
func obstacle(s state) Reason {
	src, dst := s.source, s.target
	switch {
	case !src.exists && dst.relation == relationOrphan && (dst.grace == graceProven || dst.grace == graceWaived && (s.held != "" || !dst.managed || s.refused != "" && !s.passing)):
		return ReasonOrphaned
	case !src.exists:
		return ""
	case s.misnamed != "":
		return ReasonMapper
	case !blind(s) && dst.ours() && dst.termination == stuck:
		return ReasonTerminating
	case src.deleting && src.finalizer && s.held != "": // its message has the word that releases it, for a start as well
		return ReasonHeld
	case blind(s):
		return s.refused
	case src.deleting:
		return s.refused
	case dst.exists() && !dst.ours() && (s.policy.conflict == ConflictFail || !dst.adoptable()):
		return ReasonConflict
	case !dst.exists() && s.policy.lost == LostReport && src.targetRecord != "":
		return ReasonLost
	case s.returns() && s.held != "":
		return ReasonVanished
	case dst.ours() && (dst.content == contentSourceOlder || dst.content == contentSourceOlderNoted):
		return ReasonStale
	case s.refused != "":
		return s.refused
	case dst.ours() && (s.heldByOthers != "" || dst.content.drifted()) && s.policy.drift == DriftReport:
		return ReasonDrifted
	case s.statusRefused != "":
		return ReasonStatus
	case src.contested, dst.ours() && s.contested:
		return ReasonContested
	case s.related != "":
		return ReasonRelated
	case dst.ours() && s.unknownFields != "" && !s.unsure:
		return ReasonFields
	case src.shared != "":
		return ReasonShared
	default:
		return ""
	}
}

// passes reports whether an obstacle may pass by itself before people need to know: an orphan that makes
// room for its claim does.
func (s state) passes(why Reason) bool {
	if why == ReasonConflict && s.collectable() {
		return s.held == "" && (s.refused == "" || s.passing)
	}
	return s.passing && why != "" && why == s.refused
}

// harmless reports whether an obstacle leaves the spec free to travel.
func harmless(why Reason) bool {
	return why == "" || why == ReasonRelated || why == ReasonStatus || why == ReasonContested || why == ReasonFields || why == ReasonShared
}

// told reports whether users know what stands in the way. Who changed a target is not always known, and
// what of it not always in the same words: the message is set again for another name alone.
func told(s state, why Reason) bool {
	if s.muted || s.passes(why) || s.source.shared != "" {
		return true
	}
	if (blind(s) || why == ReasonMapper) && holds(s, s.source.message) {
		return true
	}
	if why == ReasonDrifted {
		by, _, _ := strings.Cut(cmp.Or(s.heldByOthers, s.rivals), " (")
		s.heldByOthers, s.rivals = "", ""
		return strings.HasPrefix(s.source.message, explain(s, why)) && strings.Contains(s.source.message, by)
	}
	if t := s.target; why == ReasonConflict && t.relation == relationOrphan && t.grace < graceProven && strings.HasPrefix(s.source.message, string(why)+": "+leftBehind(s)) {
		return true // a start finds out why once the grace is over
	}
	return explain(s, why) == s.source.message
}

// holds reports whether a message says what is held, and how to release it: a start knows it by that.
func holds(s state, message string) bool {
	reason, said, _ := strings.Cut(message, ": ")
	return slices.Contains([]Reason{ReasonHeld, ReasonConflict, ReasonVanished}, Reason(reason)) && strings.Contains(said, heldAdvice(s.words()))
}

// solved reports whether nothing stands in the way of the object any more. After a start only the acceptance
// of target and status shows that, or of the deletion where that was refused.
func (s state) solved() bool {
	accepted := s.target.content == contentInSync || s.target.content.drifted()
	switch message := s.source.message; {
	case s.target.termination == terminating && strings.HasPrefix(message, string(ReasonTerminating)):
		return false // a start finds out whether it lasts
	case s.source.deleting:
		return s.target.termination != alive || !s.target.exists() || !strings.Contains(message, ": "+BeingDeleted)
	}
	return s.target.ours() && accepted && !s.status && !s.unsure
}

// certain reports whether an obstacle has been seen well enough to tell users.
func certain(s state, why Reason) bool {
	switch {
	case s.passes(why):
		return false
	case !s.source.exists:
		return s.target.freshness != unknown || !s.mapped
	case why == "":
		return s.solved() && !blind(s)
	default:
		return s.evidence().has(require(stepSetMessage, s))
	}
}

// explain is the message for the user of a source object.
func explain(s state, why Reason) string {
	var said string
	switch why {
	case "":
		return ""
	case ReasonMapper:
		said = s.misnamed
	case ReasonConflict:
		switch said = conflictText(s); {
		case s.collectable() && s.held != "":
			said = leftBehind(s) + leftHeld + s.held + heldAdvice(s.words()) + s.word
		case s.collectable() && s.refused != "":
			said = leftBehind(s) + ": " + s.answer
		}
	case ReasonLost:
		said = fmt.Sprintf("%s has vanished from the target cluster; remove the annotation %s to create it anew", s.target.name, s.words().TargetRecord)
	case ReasonVanished:
		said = s.target.name + hasVanished + s.comesBack()
	case ReasonStale:
		said = fmt.Sprintf("%s was made from a later generation of this object, which may have been restored from a backup; nothing is rolled back by itself. ", s.target.name) + s.goesUp()
		if s.refused != "" && !s.passing {
			said += ". That this is so has to be recorded there first, and is not: " + s.answer
		}
		if s.contested {
			said += ". It is changed in the target cluster each time that it is written to, which is done ever more slowly"
		}
	case ReasonRefused:
		said = s.asked(fates.Refuses)
	case ReasonUnavailable:
		said = s.asked(fates.CannotTake)
	case ReasonMissing:
		said = s.asked(fates.Lacks)
	case ReasonForbidden:
		said = s.asked(fates.DoesNotPermit)
	case ReasonDrifted:
		said = fmt.Sprintf("%s was changed in the target cluster%s", s.target.name, cmp.Or(s.heldByOthers, s.rivals))
	case ReasonContested:
		if said = fmt.Sprintf("%s is changed in the target cluster%s each time that it is put right", s.target.name, s.rivals); s.source.contested {
			said = fmt.Sprintf("the finalizer %s and the annotation %s of this object are taken off each time that they are put on", s.words().Mine(), s.words().TargetRecord)
		}
		said += ", which is done ever more slowly; what changes here goes up at once"
	case ReasonTerminating:
		said = fmt.Sprintf("this object is being deleted, and waits for %s to be gone from the target cluster%s", s.target.name, s.target.finalizers)
		if s.source.deleting && s.source.older != "" {
			said += fmt.Sprintf("; %s was made from a later generation of it, which may have been restored from a backup. ", s.target.name) + s.goesUp()
		}
		if !s.source.deleting {
			said = fmt.Sprintf("%s is being deleted in the target cluster, though this object is not%s; what changes here waits until it has gone: the operators there can remove what holds it", s.target.name, s.target.finalizers)
		}
	case ReasonFields:
		said = fmt.Sprintf("the target cluster has no such field of %s, so that it stays without: %s", s.target.name, s.unknownFields)
	case ReasonShared:
		said = fmt.Sprintf("another Sync, with the finalizer %s, writes the status of this object", s.source.shared)
	case ReasonStatus:
		said = "this cluster refuses the status of " + s.target.name + ": " + s.statusRefused
	case ReasonHeld:
		said = s.held + heldAdvice(s.words()) + s.word
	case ReasonRelated:
		said = s.related
	case ReasonDenied: // follows from what was tried, not from a state
	case ReasonOrphaned:
		if said = s.target.name + " was made from an object that has gone without letting it go"; s.refused != "" {
			said += ", and is not deleted: " + s.answer
		}
	}
	return clip(string(why) + ": " + said)
}

// goesUp says what users can do for a source that its target is ahead of.
func (s state) goesUp() string {
	return fmt.Sprintf("The next change of its spec goes up, and with it all of this object; to send it as it stands, also what was edited since the restore, annotate it with %s=%s", s.words().Send, s.source.older)
}

// OtherCluster stands in the message of ReasonConflict where Options.FormerSource could help.
const OtherCluster = "another source cluster"

// EarlierObject stands in the message of ReasonConflict where the target was made from an object of the same name that has gone.
const EarlierObject = "an earlier object of this name"

// leftBehind begins the message of a claim whose name an orphan has. After a colon follows why that is not deleted.
func leftBehind(s state) string {
	return s.target.name + " was made from " + EarlierObject + ", and is not deleted"
}

// leftHeld follows it where the breaker holds the orphan: no words of another cluster stand there.
const leftHeld = ", but held: "

func conflictText(s state) string {
	switch t := s.target; {
	case t.termination != alive && s.policy.lost == LostReport && s.source.targetRecord != "":
		return fmt.Sprintf("%s exists in the target cluster, was not made from this object, and is being deleted there%s", t.name, t.finalizers)
	case t.termination != alive:
		return fmt.Sprintf("%s exists in the target cluster, was not made from this object, and is being deleted there%s; this object gets its own once that has gone", t.name, t.finalizers)
	case t.relation == relationOrphan:
		return fmt.Sprintf("%s exists in the target cluster and was made from "+EarlierObject+"; it is left untouched", t.name)
	case t.relation == relationOtherCluster:
		return fmt.Sprintf("%s exists in the target cluster and was made from an object of this name in "+OtherCluster+"; it is left untouched. "+
			"If that cluster is gone for good, the owner of the binding can recover it", t.name)
	}
	return fmt.Sprintf("%s exists in the target cluster and belongs to someone else; it is left untouched", s.target.name)
}

// cannotBeRead is why a target cannot be looked at, in words that stay the same while it lasts.
func cannotBeRead(err error) string {
	if kind := fates.Of(err); kind.Fate() == fates.Later && kind != fates.Unserved || kind == fates.None {
		return "it cannot be read now"
	}
	return err.Error()
}

// asked is the message that the target's API server does not do what it is asked.
func (s state) asked(said fates.Word) string {
	switch {
	case s.source.deleting:
		return fmt.Sprintf(BeingDeleted+"%s the deletion of its target, or a change before it: %s", said, s.answer)
	case s.target.exists():
		return fmt.Sprintf("the target cluster %s this change of %s: %s", said, s.target.name, s.answer)
	case blind(s):
		return fmt.Sprintf("the target cluster %s this object: %s", said, s.answer)
	default:
		return fmt.Sprintf(madeNone, said) + s.answer
	}
}

// BeingDeleted stands in the message of a refused deletion, or of a refused edit before it. A Sync that has just been
// started reads it there.
const BeingDeleted = "this object is being deleted, and the target cluster "

// madeNone stands in the message where the first creation of a target was refused.
const madeNone = "the target cluster %s a target for this object: "

// hasVanished follows the name of a target in its message; the words on its return follow.
const hasVanished = " has vanished from the target cluster, with what it held; "

// readLoss reads the message of a target that has vanished: what stands before the words of another
// cluster, which may say anything.
func readLoss(message string) (target, said string) {
	about, is := strings.CutPrefix(message, string(ReasonVanished)+": ")
	target, said, _ = strings.Cut(about, hasVanished)
	if !is {
		return "", ""
	}
	return target, said
}

// saidOfLoss is what the message says of the return of this very target, as that of a copied manifest
// does not; empty if it tells of no loss.
func saidOfLoss(s state) string {
	target, said := readLoss(s.source.message)
	if target != s.target.name {
		return ""
	}
	return said
}

// RefusedReturn stands in the message of ReasonVanished before what the target's API server answered when
// the target was to be made anew.
const RefusedReturn = loss.Refused

// comesBack says when a target that has vanished is made anew.
func (s state) comesBack() string {
	switch {
	case s.held != "":
		return loss.Held + s.held + heldAdvice(s.words()) + s.word
	case s.answer != "":
		return s.answer
	default:
		return loss.Returns + s.returnTime
	}
}

// maxMessage keeps what other clusters say from filling our objects, and our memory.
const maxMessage = 1 << 10

func clip(said string) string { return text.Clip(said, maxMessage) }

// heldAdvice ends the message of a held deletion, before the word that releases it.
func heldAdvice(n *names.Names) string {
	return "; if it is meant, annotate this object with " + n.Release + "="
}

var klutchNames = names.Of(names.Klutch, "")

func (s state) words() *names.Names { return cmp.Or(s.names, klutchNames) }
