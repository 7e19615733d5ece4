// SPDX-License-Identifier: Apache-2.0

// Package behind knows which objects are not in step, and tells people.
//
// A [Ledger] is the konnector's: it hears of each change from a Sync, counts for the
// condition ObjectsSynced what lasts, and gives out the Events of the objects at a pace that
// no provider can raise. [Look] is that of people, who may read the objects and nothing of
// the konnector's: it goes by what is written on the objects themselves, and by Events of those
// that the konnector may not write to.
package behind
