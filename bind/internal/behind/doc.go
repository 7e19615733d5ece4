// SPDX-License-Identifier: Apache-2.0

// Package behind finds the objects of a binding that are not in step, and reports them to
// people.
//
// The konnector has a [Ledger] for each binding. The Sync reports to it each object that
// changes; the Ledger counts the objects that stay out of step, for the condition
// ObjectsSynced, and makes their Events at a pace that no provider can raise. [Look] is for
// kubectl bind, which may read the objects but does not know what the konnector knows: it
// reads the messages on the objects, and the Events of objects that the konnector may not
// write to.
//
// Events come ten a second for each binding, after the first hundred, one request at a time: ten
// thousand objects that may not carry a message are told of within a quarter of an hour. More would
// be written to the App Cluster's store at a pace that the provider chooses, since it is the
// provider who refuses and gives in; an API server has no request for many Events. Meanwhile
// ObjectsSynced has the number of objects and each reason within seconds, and kubectl bind status
// lists those that have their Event.
package behind
