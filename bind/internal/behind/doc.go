// SPDX-License-Identifier: Apache-2.0

// Package behind knows which objects are not in step, and tells people.
//
// A [Ledger] is the konnector's: it hears of each change from a Sync, counts for the
// condition ObjectsSynced what lasts, and gives out the Events of the objects at a pace that
// no provider can raise. [Look] is that of people, who may read the objects and nothing of
// the konnector's: it goes by what is written on the objects themselves, and by Events of those
// that the konnector may not write to.
//
// Events come ten a second for each binding, after the first hundred, one request at a time: ten
// thousand objects that may not carry a message are told of within a quarter of an hour. More would
// be written to the App Cluster's store at a pace that the provider chooses, since it is the
// provider who refuses and gives in; an API server has no request for many Events. Meanwhile
// ObjectsSynced has the number of objects and each reason within seconds, and kubectl bind status
// lists those that have their Event.
package behind
