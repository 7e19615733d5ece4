// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/sync/internal/contest"
)

// settledState is a pair in step, of which each test changes what it is about.
func settledState(change ...func(*state)) state {
	s := state{
		policy: policy{conflict: ConflictFail, drift: DriftCorrect, lost: LostRecreate, deletion: DeletionDelete, orphans: OrphanReport},
		mapped: true,
		source: sourceState{freshness: cached, exists: true, finalizer: true, proven: true},
		target: targetState{freshness: cached, relation: relationOurs, content: contentInSync, managed: true, uid: "u1", name: "widgets svc/a"},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

// itsRelation and contents change whose the target is, and what is in it.
func itsRelation(to targetRelation) func(*state) {
	return func(s *state) {
		s.target.relation = to
		if !s.target.ours() {
			s.target.managed, s.target.content = false, contentStale
		}
	}
}
func contents(c content) func(*state)  { return func(s *state) { s.target.content = c } }
func going(t termination) func(*state) { return func(s *state) { s.target.termination = t } }
func absentTarget(s *state)            { s.target = targetState{freshness: cached, name: "widgets svc/a"} }
func noFinalizer(s *state)             { s.source.finalizer = false }
func fresh(s *state)                   { noFinalizer(s); absentTarget(s) }
func deleting(s *state)                { s.source.deleting, s.confirmed = true, true }
func liveTarget(s *state)              { s.target.freshness = live }
func liveSource(s *state)              { s.source.freshness = live }
func adopt(s *state)                   { s.policy.conflict = ConflictAdopt }
func orphanTarget(s *state)            { s.policy.deletion = DeletionOrphan }
func collectOrphans(s *state)          { s.policy.orphans = OrphanDelete }
func sourceGone(s *state)              { s.source, s.confirmed = sourceState{freshness: cached}, true }

func orphaned(g grace) func(*state) {
	return func(s *state) { itsRelation(relationOrphan)(s); s.target.grace, s.target.managed = g, true }
}
func marked(s *state)        { s.source.targetRecord = "u1" }
func unproven(s *state)      { s.source.proven = false }
func paused(s *state)        { s.paused = true }
func stuckCopy(s *state)     { s.related = "secrets svc/a is taken" }
func lostReport(s *state)    { s.policy.lost = LostReport }
func driftReport(s *state)   { s.policy.drift = DriftReport }
func messageSet(s *state)    { s.source.message = explain(*s, obstacle(*s)) }
func ownedByOthers(s *state) { s.heldByOthers = " by them (.spec.size)" }
func refused(s *state)       { s.refused, s.answer = ReasonRefused, "spec.size: Unsupported value" }
func contested(s *state)     { s.contested = true }
func rivals(s *state)        { s.rivals = " by them (.spec.size)" }
func unreported(s *state)    { s.unreported = true }
func shared(s *state)        { s.source.shared = "example.org/first" }
func lost(s *state)          { s.refused = ReasonVanished }
func offeredLive(s *state)   { s.target.freshness, s.confirmed, s.offered = live, true, true }
func misnamed(s *state) {
	s.misnamed, s.target = "the mapper gives this object's target no name", targetState{}
}

func unmapped(s *state) {
	s.mapped, s.target, s.refused, s.answer = false, targetState{}, ReasonMissing, "it has no place there for widgets team/a"
}

func unread(s *state) {
	s.target, s.refused, s.answer = targetState{}, ReasonMissing, "target: widgets is not served in version v1"
}
func due(s *state)           { s.due = true }
func unconfirmed(s *state)   { s.confirmed = false }
func suspect(s *state)       { s.suspect = true }
func held(s *state)          { s.held = "more than 10 objects were deleted" }
func statusRefused(s *state) { s.statusRefused = "status.phase: Unsupported value" }
func statusDelayed(s *state) { s.statusDelayed = true }
func statusDiffers(s *state) { s.status = true }
func muted(s *state)         { s.muted = true }
func left(s *state)          { s.unknownFields = "spec.extra" }
func unsure(s *state)        { s.unsure = true }
func oldMessage(s *state)    { s.source.message = "x" }

var (
	foreign     = itsRelation(relationForeign)
	vanished    = itsRelation(relationVanished)
	legacyMade  = itsRelation(relationLegacy)
	contend     = itsRelation(relationLegacyWrote)
	predecessor = itsRelation(relationPredecessor)
	changed     = contents(contentStale)
	drifted     = contents(contentDrifted)
	ahead       = contents(contentSourceOlder)
	rewritten   = contents(contentRewritten)
	terminates  = going(terminating)
)

func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		state state
		want  step
	}{
		"in step":                                   {settledState(), stepRest},
		"source unknown":                            {settledState(func(s *state) { s.source = sourceState{} }), stepWait},
		"source gone":                               {settledState(sourceGone), stepRest},
		"target unknown":                            {settledState(func(s *state) { s.target = targetState{} }), stepWait},
		"target unknown while deleting":             {settledState(deleting, func(s *state) { s.target = targetState{} }), stepWait},
		"target orphaned":                           {settledState(sourceGone, orphaned(graceRunning)), stepWait},
		"target orphaned for long":                  {settledState(sourceGone, orphaned(graceElapsed)), stepProve},
		"target orphaned, proven":                   {settledState(sourceGone, orphaned(graceProven)), stepRest},
		"target orphaned, to delete":                {settledState(sourceGone, orphaned(graceProven), collectOrphans), stepProve},
		"target orphaned, to delete, live":          {settledState(sourceGone, orphaned(graceProven), collectOrphans, liveSource, liveTarget), stepCollect},
		"target orphaned, deletions held":           {settledState(sourceGone, orphaned(graceProven), collectOrphans, liveSource, liveTarget, held), stepWait},
		"target of a source deleted too soon":       {settledState(sourceGone, orphaned(graceWaived)), stepProve},
		"target of a source deleted too soon, live": {settledState(sourceGone, orphaned(graceWaived), liveSource, liveTarget), stepCollect},
		"target of a source deleted too soon, held": {settledState(sourceGone, orphaned(graceWaived), liveSource, liveTarget, held), stepWait},
		"target of one deleted too soon, made anew": {settledState(deleting, orphaned(graceWaived), liveSource, liveTarget, func(s *state) { s.source.deleting = false }), stepCollect},
		"target orphaned, name taken":               {settledState(orphaned(graceElapsed), collectOrphans, liveTarget, messageSet), stepProve},
		"no name yet":                               {settledState(fresh, func(s *state) { s.mapped = false }), stepRest},
		"no name any more, deleting":                {settledState(deleting, func(s *state) { s.mapped = false }), stepRest},
		"no name for long":                          {settledState(unmapped), stepRest},
		"no name yet for long":                      {settledState(fresh, unmapped), stepRest},
		"no name for long, said":                    {settledState(unmapped, messageSet), stepRest},
		"no name for long, deleting":                {settledState(deleting, unmapped), stepRest},
		"no name for long, deleting, said":          {settledState(deleting, unmapped, messageSet), stepRest},
		"no name for long, deleted, never ours":     {settledState(fresh, deleting, unmapped), stepRest},
		"kind gone":                                 {settledState(unread), stepSetMessage},
		"kind gone, told soon":                      {settledState(unread, func(s *state) { s.passing = true }), stepWait},
		"kind gone, said":                           {settledState(unread, messageSet), stepWait},
		"kind gone, deleting":                       {settledState(unread, deleting), stepSetMessage},
		"kind gone, deleting, said":                 {settledState(unread, deleting, messageSet), stepWait},
		"kind gone, target lost, by policy":         {settledState(unread, lostReport, marked, messageSet), stepWait},
		"kind gone, deletion held":                  {settledState(unread, deleting, held, messageSet), stepWait},

		"new source":               {settledState(fresh), stepAddFinalizer},
		"held, no target":          {settledState(absentTarget), stepCreate},
		"held before our time":     {settledState(absentTarget, unproven), stepLookSource},
		"spec or metadata changed": {settledState(changed), stepApply},
		"status changed":           {settledState(statusDiffers), stepStatus},
		"last part taken away":     {settledState(contents(contentEmptyMap)), stepEmptyMap},
		"both changed":             {settledState(changed, statusDiffers), stepApply},
		"finalizer taken off":      {settledState(noFinalizer), stepAddFinalizer},
		"target being deleted":     {settledState(terminates, changed), stepWait},
		"target being deleted, status changed": {
			settledState(terminates, statusDiffers), stepStatus,
		},

		"drift":                            {settledState(drifted), stepLookTarget},
		"drift, status changed":            {settledState(drifted, statusDiffers), stepStatus},
		"drift, corrected a moment ago":    {settledState(drifted, paused), stepWait},
		"drift, perhaps, after a start":    {settledState(contents(contentUnverified)), stepApply},
		"drift, by policy reported":        {settledState(drifted, driftReport, liveTarget), stepSetMessage},
		"drift, reported":                  {settledState(drifted, driftReport, messageSet), stepRest},
		"drift, reported, status changed":  {settledState(drifted, driftReport, messageSet, statusDiffers), stepStatus},
		"drift, reported, target changed":  {settledState(contents(contentChanged), driftReport, messageSet), stepLookTarget},
		"drift undone by others":           {settledState(contents(contentUnverified), driftReport, func(s *state) { s.source.message = "TargetDrifted: x" }, liveTarget), stepApply},
		"drift gone":                       {settledState(driftReport, func(s *state) { s.source.message = "TargetDrifted: x" }), stepSetMessage},
		"change contested":                 {settledState(changed, ownedByOthers), stepForce},
		"change contested, by policy left": {settledState(changed, ownedByOthers, driftReport, liveTarget), stepSetMessage},

		"target lost":                            {settledState(absentTarget), stepCreate},
		"target not recorded":                    {settledState(lostReport), stepMark},
		"target recorded":                        {settledState(lostReport, marked), stepRest},
		"target lost, by policy reported":        {settledState(absentTarget, lostReport, liveTarget, marked), stepSetMessage},
		"target seems lost, by policy reported":  {settledState(absentTarget, lostReport, marked), stepLookTarget},
		"drift, as it seems, by policy reported": {settledState(drifted, driftReport), stepLookTarget},
		"target lost, reported":                  {settledState(absentTarget, lostReport, marked, messageSet), stepRest},
		"target lost, told, not reported":        {settledState(absentTarget, lostReport, marked, messageSet, unreported), stepLookTarget},
		"target never was, by policy no say":     {settledState(absentTarget, lostReport), stepCreate},

		"rewritten by our like":                             {settledState(rewritten), stepLookSource},
		"rewritten, source live":                            {settledState(rewritten, liveSource), stepApply},
		"contended by a peer":                               {settledState(contend), stepProve},
		"contended, seen live":                              {settledState(contend, liveSource, liveTarget), stepMigrate},
		"contended, reported":                               {settledState(contend, liveTarget, driftReport), stepRest},
		"contended again":                                   {settledState(contend, paused), stepWait},
		"made by a peer":                                    {settledState(legacyMade, changed, liveTarget), stepMigrate},
		"made by a peer, deleted, says the cache":           {settledState(legacyMade, changed, deleting, liveTarget), stepProve},
		"made by a peer, deleted":                           {settledState(legacyMade, changed, deleting, liveSource, liveTarget), stepMigrate},
		"made by a peer, deleted, keeps, says the cache":    {settledState(legacyMade, contents(contentRefused), deleting), stepLookSource},
		"made by a peer, deleted, and keeps what it is":     {settledState(legacyMade, contents(contentRefused), deleting, liveSource, liveTarget), stepDelete},
		"older than its target, deleted, waits":             {settledState(contents(contentSourceOlder), deleting, going(terminating), liveSource), stepNote},
		"made from an earlier source, by policy taken over": {settledState(predecessor, liveTarget, adopt), stepMigrate},
		"name taken, says the cache":                        {settledState(foreign), stepLookTarget},
		"name taken":                                        {settledState(foreign, liveTarget), stepSetMessage},
		"name taken, said":                                  {settledState(foreign, liveTarget, messageSet), stepRest},
		"name taken, new source":                            {settledState(noFinalizer, foreign, liveTarget, messageSet), stepRest},
		"name taken, to adopt, cached":                      {settledState(foreign, adopt), stepLookTarget},
		"name taken, to adopt":                              {settledState(foreign, adopt, liveTarget), stepForce},
		"name taken, to adopt, new source":                  {settledState(foreign, adopt, liveTarget, noFinalizer), stepAddFinalizer},
		"name taken by another source's":                    {settledState(itsRelation(relationOtherCluster), adopt, liveTarget), stepSetMessage},
		"name taken by another cluster's":                   {settledState(itsRelation(relationOtherSource), adopt, liveTarget), stepSetMessage},
		"name taken by what is going":                       {settledState(foreign, adopt, liveTarget, terminates), stepSetMessage},

		"refused":                {settledState(absentTarget, refused), stepSetMessage},
		"refused, said":          {settledState(absentTarget, refused, messageSet), stepWait},
		"refused, changed":       {settledState(absentTarget, refused, messageSet, due), stepCreate},
		"change refused, said":   {settledState(changed, refused, messageSet), stepWait},
		"change refused, due":    {settledState(changed, refused, messageSet, due), stepApply},
		"drift refused, said":    {settledState(drifted, refused, messageSet), stepWait},
		"drift refused, due":     {settledState(drifted, refused, messageSet, due, liveTarget), stepForce},
		"takeover refused":       {settledState(legacyMade, refused, messageSet, liveTarget), stepWait},
		"adoption refused":       {settledState(foreign, adopt, refused, messageSet, liveTarget), stepWait},
		"takeover refused, due":  {settledState(contend, refused, messageSet, due, liveSource, liveTarget), stepMigrate},
		"change refused, status": {settledState(changed, refused, messageSet, statusDiffers), stepStatus},
		"deletion refused":       {settledState(deleting, refused), stepSetMessage},
		"deletion refused, said": {settledState(deleting, refused, messageSet), stepWait},
		"deletion refused, due":  {settledState(deleting, refused, messageSet, due), stepDelete},
		"misnamed":               {settledState(misnamed), stepSetMessage},
		"misnamed, said":         {settledState(misnamed, messageSet), stepRest},
		"misnamed, deleting":     {settledState(misnamed, messageSet, deleting), stepRest},
		"misnamed, new source":   {settledState(fresh, misnamed, messageSet), stepRest},

		"target is ahead, says the cache": {settledState(ahead), stepLookSource},
		"target is ahead":                 {settledState(ahead, liveSource), stepSetMessage},
		"target is ahead, said":           {settledState(ahead, liveSource, messageSet), stepNote},
		"target is ahead, noted":          {settledState(contents(contentSourceOlderNoted), liveSource, messageSet), stepRest},
		"target is owned by others too":   {settledState(contents(contentShared)), stepLookTarget},
		"owned by others too, seen live":  {settledState(contents(contentShared), liveTarget), stepTakeFields},
		"owned by others too, paused":     {settledState(contents(contentShared), paused), stepWait},

		"target is ahead, noted just now":     {settledState(ahead, liveSource, messageSet, paused), stepWait},
		"finalizer taken off just now":        {settledState(noFinalizer, func(s *state) { s.source.paused = true }), stepWait},
		"finalizer taken off again and again": {settledState(noFinalizer, func(s *state) { s.source.contested = true }), stepSetMessage},
		"record taken off just now":           {settledState(lostReport, func(s *state) { s.source.paused = true }), stepWait},
		"contested again and again":           {settledState(contested), stepSetMessage},
		"contested, told":                     {settledState(contested, messageSet), stepWait},
		"contested, told, whose is known":     {settledState(contested, messageSet, rivals), stepSetMessage},
		"contested, status changed":           {settledState(contested, messageSet, statusDiffers, paused), stepStatus},
		"written just now, changed by others": {settledState(contested, messageSet, changed, paused), stepWait},
		"drifted, whose is not known":         {settledState(drifted), stepLookTarget},
		"drifted, seen live":                  {settledState(drifted, liveTarget), stepForce},
		"another Sync has something to say":   {settledState(shared, func(s *state) { s.source.message = "x" }), stepRest},
		"another Sync has nothing to say":     {settledState(shared, stuckCopy), stepRest},

		"deleted, changed before":           {settledState(deleting, changed), stepApply},
		"deleted, changed while it waits":   {settledState(deleting, changed, terminates), stepApply},
		"deleted, changed while it is held": {settledState(deleting, changed, held, messageSet), stepApply},
		"deleted, the change was refused":   {settledState(deleting, contents(contentRefused), refused, due, messageSet), stepDelete},
		"deleted, the change was contested": {settledState(deleting, changed, ownedByOthers, liveTarget), stepForce},
		"deleted, contested, reported":      {settledState(deleting, changed, ownedByOthers, driftReport, liveTarget, messageSet), stepDelete},
		"deleted, status changed":           {settledState(deleting, statusDiffers, terminates), stepStatus},
		"deleted, deletion refused, status": {settledState(deleting, refused, messageSet, statusDiffers), stepStatus},

		"status delayed":                 {settledState(statusDelayed), stepWait},
		"status delayed, spec changed":   {settledState(statusDelayed, changed), stepApply},
		"status refused":                 {settledState(statusRefused), stepSetMessage},
		"status refused, said":           {settledState(statusRefused, messageSet), stepWait},
		"status refused, spec changed":   {settledState(statusRefused, messageSet, changed), stepApply},
		"status refused, status changed": {settledState(statusRefused, messageSet, statusDiffers), stepStatus},
		"related object stuck":           {settledState(stuckCopy), stepSetMessage},
		"related object stuck, said":     {settledState(stuckCopy, messageSet, changed), stepApply},

		"field unknown":                          {settledState(left), stepSetMessage},
		"field unknown, said":                    {settledState(left, messageSet), stepRest},
		"field unknown, spec changed":            {settledState(left, messageSet, changed), stepApply},
		"field unknown, status changed":          {settledState(left, messageSet, statusDiffers), stepStatus},
		"field unknown, drift":                   {settledState(left, messageSet, drifted, liveTarget), stepForce},
		"field unknown, deleted":                 {settledState(left, deleting), stepDelete},
		"field perhaps unknown":                  {settledState(left, unsure), stepRest},
		"field perhaps unknown, spec changed":    {settledState(left, unsure, changed), stepApply},
		"field perhaps unknown, said before":     {settledState(left, messageSet, unsure), stepRest},
		"field perhaps unknown, message is left": {settledState(left, unsure, oldMessage), stepRest},
		"field known, message is left":           {settledState(oldMessage), stepSetMessage},

		"muted, field unknown":               {settledState(left, muted), stepRest},
		"muted, field unknown, spec changed": {settledState(left, muted, changed), stepApply},
		"muted, message is left":             {settledState(muted, oldMessage), stepRest},
		"muted, new source":                  {settledState(fresh, muted, oldMessage), stepAddFinalizer},
		"muted, refused":                     {settledState(absentTarget, refused, muted), stepWait},
		"muted, refused, due":                {settledState(absentTarget, refused, due, muted), stepCreate},
		"muted, change refused, due":         {settledState(changed, refused, due, muted), stepApply},
		"muted, change refused, status":      {settledState(changed, refused, muted, statusDiffers), stepStatus},
		"muted, status refused":              {settledState(statusRefused, muted), stepWait},
		"muted, status refused, changed":     {settledState(statusRefused, muted, changed), stepApply},
		"muted, related object stuck":        {settledState(stuckCopy, muted, changed), stepApply},
		"muted, contested":                   {settledState(contested, muted, statusDiffers), stepStatus},
		"muted, drift, by policy reported":   {settledState(drifted, driftReport, liveTarget, muted, statusDiffers), stepStatus},
		"muted, name taken":                  {settledState(foreign, liveTarget, muted), stepRest},
		"muted, name taken, says the cache":  {settledState(foreign, muted), stepLookTarget},
		"muted, kind gone":                   {settledState(unread, muted), stepWait},
		"muted, misnamed":                    {settledState(misnamed, muted), stepRest},
		"muted, target is ahead":             {settledState(ahead, liveSource, muted), stepNote},
		"muted, target is going slowly":      {settledState(going(stuck), muted, statusDiffers), stepStatus},
		"muted, target lost, confirmed":      {settledState(absentTarget, vanished, offeredLive, lost, due, muted), stepCreate},
		"muted, deleted":                     {settledState(deleting, muted, oldMessage), stepDelete},
		"muted, deleted, refused, due":       {settledState(deleting, refused, due, muted), stepDelete},
		"muted, deleted, held":               {settledState(deleting, held, muted), stepWait},
		"muted, deleted, target gone":        {settledState(deleting, absentTarget, liveTarget, muted, oldMessage), stepRemoveFinalizer},

		"deleted, never ours":              {settledState(fresh, deleting), stepRest},
		"deleted":                          {settledState(deleting), stepDelete},
		"deleted, by a live read":          {settledState(deleting, liveTarget), stepDelete},
		"deleted, target is going":         {settledState(deleting, terminates), stepWait},
		"deleted, target is going slowly":  {settledState(deleting, going(stuck)), stepSetMessage},
		"deleted, slowly, said":            {settledState(deleting, going(stuck), messageSet), stepWait},
		"target alone is going slowly":     {settledState(changed, going(stuck)), stepSetMessage},
		"target alone, slowly, said":       {settledState(changed, going(stuck), messageSet), stepWait},
		"target alone, slowly, its status": {settledState(changed, going(stuck), messageSet, statusDiffers), stepStatus},
		"deleted, target gone from cache":  {settledState(deleting, absentTarget), stepLookTarget},
		"deleted, target gone":             {settledState(deleting, absentTarget, liveTarget), stepRemoveFinalizer},
		"deleted, name is taken by cache":  {settledState(deleting, foreign), stepLookTarget},
		"deleted, name is taken":           {settledState(deleting, foreign, liveTarget), stepRemoveFinalizer},
		"deleted, to orphan, cached":       {settledState(deleting, orphanTarget), stepLookTarget},
		"deleted, to orphan":               {settledState(deleting, orphanTarget, liveTarget), stepLetGo},
		"deleted, orphaned, without ours":  {settledState(deleting, orphanTarget, liveTarget, func(s *state) { s.target.managed = false }), stepLetGo},
		"deleted, orphaned, of no source":  {settledState(deleting, orphanTarget, liveTarget, foreign), stepRemoveFinalizer},
		"deleted, to orphan, but going":    {settledState(deleting, orphanTarget, terminates), stepWait},
		"deleted, clusters not confirmed":  {settledState(deleting, unconfirmed), stepConfirm},
		"deleted, gone, not confirmed":     {settledState(deleting, absentTarget, liveTarget, unconfirmed), stepLookTarget},
		"deleted, after a restore, cached": {settledState(deleting, suspect), stepLookSource},
		"deleted, after a restore, live":   {settledState(deleting, suspect, liveSource), stepDelete},
		"deleted, held":                    {settledState(deleting, held), stepSetMessage},
		"deleted, held, said":              {settledState(deleting, held, messageSet), stepWait},
		"deleted, held, target gone":       {settledState(deleting, held, absentTarget, liveTarget, messageSet), stepWait},
		"deleted, held before":             {settledState(deleting, func(s *state) { s.source.message = "DeletionsHeld: x" }), stepSetMessage},
		"deleted, held, never ours":        {settledState(fresh, deleting, held), stepRest},
		"target lost, not confirmed":       {settledState(absentTarget, vanished), stepLookTarget},
		"target lost, perhaps not offered": {settledState(absentTarget, vanished, liveTarget, func(s *state) { s.confirmed = true }), stepLookTarget},
		"target lost, confirmed":           {settledState(absentTarget, vanished, offeredLive), stepCreate},
		"target lost, told, paused":        {settledState(absentTarget, vanished, lost, messageSet), stepWait},
		"target lost, told by another":     {settledState(absentTarget, vanished, lost, messageSet, unreported), stepLookTarget},
		"target lost, not told":            {settledState(absentTarget, vanished, offeredLive, lost), stepSetMessage},
		"target lost, pause over":          {settledState(absentTarget, vanished, lost, messageSet, due), stepLookTarget},
		"target lost, pause over, offered": {settledState(absentTarget, vanished, lost, messageSet, due, offeredLive), stepCreate},
		"target lost, with too many":       {settledState(absentTarget, vanished, lost, held, messageSet, due, offeredLive), stepWait},
		"deleted, with a message to clear": {settledState(deleting, func(s *state) { s.source.message = "x" }), stepSetMessage},
		"deleted, as was refused before":   {settledState(deleting, func(s *state) { s.source.message = "x: " + BeingDeleted }), stepDelete},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan(test.state); got != test.want {
				t.Errorf("plan = %q, want %q", got, test.want)
			}
		})
	}
}

// invariants hold of every state, reasonable or not.
var invariants = map[string]func(s state, do step) bool{
	"I2: only the target of a deleted source is deleted": func(s state, do step) bool {
		return do != stepDelete || s.source.deleting && s.source.finalizer && s.target.ours() && s.policy.deletion == DeletionDelete
	},
	"I3: the finalizer stays until a live read shows no target of ours, or policy lets it go": func(s state, do step) bool {
		return do != stepRemoveFinalizer || s.source.deleting && s.target.freshness == live &&
			(!s.target.ours() || s.policy.deletion == DeletionOrphan)
	},
	"I3: nothing is made without the finalizer": func(s state, do step) bool {
		return !applies(do) && do != stepMigrate || s.source.finalizer && (!s.source.deleting || s.target.ours())
	},
	"I3: nothing is made for a source that is being deleted": func(s state, do step) bool {
		return do != stepCreate && (do != stepMigrate || s.target.ours()) || !s.source.deleting
	},
	"I3: nothing is made for a source that may have been let go": func(s state, do step) bool {
		return !applies(do) && do != stepMigrate || s.target.ours() || s.source.proven || s.source.freshness == live
	},
	"I4: nothing is made where something is": func(s state, do step) bool {
		return do != stepCreate || !s.target.exists()
	},
	"I4: what vanished is made anew in a known cluster only": func(s state, do step) bool {
		return do != stepCreate || s.target.relation != relationVanished || s.confirmed && s.target.freshness == live
	},
	"I4: what vanished is made anew only while it is on offer, told and not held": func(s state, do step) bool {
		returns := s.offered && s.held == "" && (s.refused == "" || s.due)
		return do != stepCreate || s.target.relation != relationVanished || returns
	},
	"I5: a status comes from the source's own target": func(s state, do step) bool {
		return do != stepStatus || s.target.ours()
	},
	"I6: the source's generation never decreases": func(s state, do step) bool {
		return !applies(do) || s.target.content != contentSourceOlder || !s.target.ours()
	},
	"I6: what another konnector applied is overwritten by a live source only": func(s state, do step) bool {
		return !applies(do) || s.target.content != contentRewritten || !s.target.ours() || s.source.freshness == live
	},
	"I9: what is someone else's stays": func(s state, do step) bool {
		foreign := s.target.exists() && !s.target.ours()
		may := s.policy.conflict == ConflictAdopt && s.target.adoptable() && s.target.freshness == live && (do == stepForce || do == stepMigrate || do == stepEmptyMap)
		return !foreign || may || !applies(do) && do != stepMigrate && do != stepDelete && do != stepLetGo && (do != stepCollect || s.target.relation == relationOrphan)
	},
	"I9: what others hold is taken by policy only": func(s state, do step) bool {
		return do != stepForce || !s.target.ours() || s.policy.drift == DriftCorrect && !s.paused
	},
	"I11: what is unknown justifies nothing": func(s state, do step) bool {
		tells := do == stepSetMessage && s.source.freshness != unknown
		return s.source.freshness != unknown && (s.target.freshness != unknown || !s.mapped) || do == stepWait || do == stepRest || tells
	},
	"I2: nothing is taken away in clusters that are not confirmed": func(s state, do step) bool {
		return do != stepDelete && do != stepLetGo && do != stepRemoveFinalizer && do != stepCollect || s.confirmed
	},
	"I2: what has lost its source is deleted by policy or by evidence, and seen live": func(s state, do step) bool {
		seen := s.source.freshness == live && s.target.freshness == live
		policy := s.target.grace == graceProven && s.policy.orphans == OrphanDelete && s.policy.deletion == DeletionDelete
		return do != stepCollect || s.target.relation == relationOrphan && seen && (policy || s.target.grace == graceWaived)
	},
	"I15: what the breaker holds stays": func(s state, do step) bool {
		return s.held == "" || do != stepCollect && do != stepDelete && do != stepLetGo && do != stepRemoveFinalizer
	},
	"I2: after a restore only what is seen live is deleted": func(s state, do step) bool {
		return do != stepDelete || !s.suspect || s.source.freshness == live
	},
	"what was refused waits until it is due": func(s state, do step) bool {
		return !applies(do) && do != stepMigrate || s.source.deleting || s.refused == "" || s.due
	},
	"I19: what others took off waits for its turn": func(s state, do step) bool {
		return (do != stepAddFinalizer && do != stepMark || !s.source.paused) && (do != stepNote || !s.paused)
	},
	"a refusal that is due is asked again": func(s state, do step) bool {
		left := s.target.content == contentInSync && s.target.relation != relationLegacyWrote && s.heldByOthers == "" || s.target.content == contentSourceOlder
		writes := s.mapped && s.misnamed == "" && s.source.exists && s.source.finalizer && !s.source.deleting && s.target.ours() && s.target.termination == alive
		asked := writes && !left && s.policy.drift == DriftCorrect && s.source.freshness != unknown && s.target.freshness != unknown && !s.paused
		return !asked || s.refused == "" || !s.due || do != stepWait && do != stepRest
	},
	"a confirmation is asked for once": func(s state, do step) bool { return do != stepConfirm || !s.confirmed },
	"a look finds out something": func(s state, do step) bool {
		offered := s.offered || s.target.relation != relationVanished // else its return is paused
		source, target := s.source.freshness == live, s.target.freshness == live && s.confirmed && offered
		return (do != stepLookTarget || !target) && (do != stepLookSource || !source) && (do != stepProve || !source || !target)
	},
	"a message says something new": func(s state, do step) bool {
		return do != stepSetMessage || explain(s, obstacle(s)) != s.source.message
	},
	"I18: a message that cannot be written changes no other step": func(s state, do step) bool {
		mute, said, free := s, s, s
		mute.muted, said.muted, free.muted = true, false, false
		said.source.message = explain(s, obstacle(s))
		got := plan(mute)
		return got != stepSetMessage && got == plan(said) && (decide(free) == stepSetMessage || got == plan(free)) && (!s.muted || do == got)
	},
	"what has no certain name is not touched": func(s state, do step) bool {
		return s.misnamed == "" || !s.source.exists || do == stepSetMessage || do == stepRest || do == stepWait || do == stepCollect || looks(do)
	},
	"fields that may be known soon are not told": func(s state, do step) bool {
		return do != stepSetMessage || !s.unsure || obstacle(s) != ReasonFields
	},
	"a message is not set because of a cache": func(s state, do step) bool {
		why := obstacle(s)
		frightens := why == ReasonConflict || why == ReasonLost || why == ReasonVanished || why == ReasonDrifted
		return do != stepSetMessage || (!frightens || s.target.freshness == live) && (why != ReasonStale || s.source.freshness == live)
	},
	"no step is done without its evidence": func(s state, do step) bool {
		return s.evidence().has(require(do, s)) || do != decide(s)
	},
}

// looks reports whether a step only reads.
func looks(do step) bool {
	return do == stepLookSource || do == stepLookTarget || do == stepProve || do == stepConfirm
}

// applies reports whether a step applies the target.
func applies(do step) bool {
	return do == stepCreate || do == stepApply || do == stepForce || do == stepEmptyMap
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		for range 50 {
			s := anyState(r)
			do := plan(s)
			for name, holds := range invariants {
				if !holds(s, do) {
					t.Fatalf("%s: %q in %+v", name, do, s)
				}
			}
		}
	})
}

func anyState(r *rand.Rand) state {
	flip := func() bool { return r.IntN(2) == 0 }
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	s := state{
		policy: policy{
			ConflictPolicy(one("Fail", "Adopt")), DriftPolicy(one("Correct", "Report")),
			LostPolicy(one("Recreate", "Report")), DeletionPolicy(one("Delete", "Orphan")), OrphanPolicy(one("Report", "Delete")),
		},
		mapped: r.IntN(8) > 0, due: flip(), passing: flip(), offered: flip(),
		refused:   Reason(one("", "", string(ReasonRefused), string(ReasonForbidden), string(ReasonUnavailable), string(ReasonMissing), string(ReasonVanished))),
		confirmed: flip(), suspect: flip(), held: one("", "", "too many"), paused: flip(), contested: flip(), rivals: one("", " by them"), status: flip(), statusDelayed: flip(),
		heldByOthers: one("", "", " by them"), statusRefused: one("", "", "bad"), related: one("", "", "taken"),
		muted: r.IntN(4) == 0, unknownFields: one("", "", "spec.extra"), misnamed: one("", "", "", "", "", "", "", "no name"),
		source: sourceState{freshness(r.IntN(3)), r.IntN(8) > 0, flip(), flip(), flip(), one("", "u1", "u2"), one("", "x"), "1", one("", "", "", "example.org/first"), r.IntN(4) == 0, r.IntN(4) == 0},
		target: targetState{
			freshness: freshness(r.IntN(3)), relation: targetRelation(r.IntN(int(relationOtherCluster) + 1)), content: content(r.IntN(int(contentInSync) + 1)),
			termination: termination(r.IntN(int(stuck) + 1)), grace: grace(r.IntN(int(graceWaived) + 1)), managed: flip(), uid: "u1", name: "widgets svc/a",
		},
	}
	s.unsure = s.unknownFields != "" && flip()
	if blind(s) && s.refused == ReasonVanished {
		s.refused = "" // that it has vanished is seen
	}
	if flip() {
		s.source.message = explain(s, obstacle(s))
	}
	return s
}

// Each reason has words, which name what the user can look at.
func TestExplain(t *testing.T) {
	s := settledState(ownedByOthers, refused, stuckCopy)
	for _, why := range []Reason{
		ReasonConflict, ReasonRefused, ReasonForbidden, ReasonUnavailable, ReasonMissing, ReasonDrifted, ReasonLost, ReasonVanished, ReasonTerminating, ReasonHeld, ReasonStatus, ReasonStale, ReasonRelated, ReasonOrphaned,
	} {
		text := explain(s, why)
		if !strings.HasPrefix(text, string(why)+": ") || len(text) < len(why)+10 {
			t.Errorf("explain(%s) = %q", why, text)
		}
	}
	if got := explain(s, ""); got != "" {
		t.Errorf("explain of nothing = %q", got)
	}
}

// The pause between looks depends on what is waited for.
func TestAgain(t *testing.T) {
	p := &pair{}
	if got := p.nextLook(stepWait, &record{}); got != livePause {
		t.Errorf("without a sight of the target: %v", got)
	}
	p.mapped, p.state.target.freshness = true, cached
	if got := p.nextLook(stepRest, &record{}); got != 0 {
		t.Errorf("rest: %v", got)
	}
	if got := p.nextLook(stepWait, &record{}); got != waitPause {
		t.Errorf("wait: %v", got)
	}
	p.refused, p.wait = ReasonRefused, time.Hour
	if got := p.nextLook(stepWait, &record{}); got < 59*time.Minute {
		t.Errorf("refused: %v", got)
	}
}

// What another cluster says of who changed a target is told once, also where it does not print, or is long.
func TestRivalsAreToldOnce(t *testing.T) {
	for _, manager := range []string{"composer", "them\x1b[2J", "the\u200bm", strings.Repeat("long", 500)} {
		u := &unstructured.Unstructured{}
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:size":{}}}`)}})
		by := contest.Rivals(u, "us", map[string]any{"spec": map[string]any{"size": "small"}})
		s := settledState(drifted, driftReport, liveTarget, func(s *state) { s.rivals = by })
		messageSet(&s)
		if by == "" || !told(s, obstacle(s)) {
			t.Errorf("%.30q is told without end: %.80q", by, s.source.message)
		}
	}
}
