// SPDX-License-Identifier: Apache-2.0

package automation

import "fmt"

// A State is what status.managed.state of a claim says.
type State string

// The states.
const (
	Running   State = "Running"   // an instance is there and can be used
	Created   State = "Created"   // a binding's credentials are there
	Completed State = "Completed" // a backup or a restore is done
	Pending   State = "Pending"   // the claim waits for another one
	Failed    State = "Failed"    // the claim is refused as it stands
	Deleting  State = "Deleting"  // the object of the claim is being removed
)

func (s State) ready() bool { return s == Running || s == Created || s == Completed }

// Reasons of a condition of a claim that is not carried out. Each heals by itself
// when its cause changes.
const (
	InstanceNotFound   = "InstanceNotFound"
	InstanceNotReady   = "InstanceNotReady"
	BackupNotFound     = "BackupNotFound"
	BackupNotReady     = "BackupNotReady"
	SnapshotLost       = "SnapshotLost"
	ServiceNotOffered  = "ServiceNotOffered"
	ServiceMismatch    = "ServiceMismatch"
	PlanMismatch       = "PlanMismatch"
	TooManyConnections = "TooManyConnections"
	NameTaken          = "NameTaken"
	EngineFailed       = "EngineFailed" // tried again
	Refused            = "Refused"      // by the API server, for a quota or a policy; tried again
)

// A hold is why a claim is not carried out: as an error it is not to be retried,
// since the claim is looked at again when anything it depends on changes. That of an
// engine or of the API server is retried: nothing tells when its cause goes.
type hold struct {
	state           State // Pending or Failed
	reason, message string
}

func (h *hold) Error() string { return h.reason + ": " + h.message }

func refuse(reason, format string, args ...any) error {
	return &hold{Failed, reason, fmt.Sprintf(format, args...)}
}

func wait(reason, format string, args ...any) error {
	return &hold{Pending, reason, fmt.Sprintf(format, args...)}
}
