// SPDX-License-Identifier: Apache-2.0

// Package automation carries out the claims of package catalog in the Control
// Plane Cluster. It stands where Crossplane, an operator or a service broker stands
// in earnest, and behaves like those towards the rest of Klutch: it refuses invalid
// claims and says why, makes real objects, reports status.managed, and removes its
// finalizer from a claim only when the claim's object is gone.
//
//	err := automation.Run(ctx, config, engines) // blocks until ctx is done
//
// Each claim has one object of the same name and a suffix, in the same namespace,
// which belongs to it:
//
//	PostgresqlInstance, …   ConfigMap …-state             the data service and its contents
//	ServiceBinding          Secret    …-service-binding   username, password, database, host, port, uri
//	Backup                  ConfigMap …-snapshot          the contents as they were
//	Restore                                               writes the contents of a …-state
//
// Package engine runs the servers of instances. Where it has none for a data service, the
// key "contents" of a …-state is the data: write there what you want backed up. Random
// values (identifiers, passwords) are stored in the
// object for which they are made, so that a restart finds it again.
//
// A finalizer of yours on a …-state plays a slow data service: the claim's deletion waits.
//
// status.managed is the truth about a claim; its state is Running (of instances; plan is the
// plan that runs), Created (of bindings; secret names the credentials), Completed (of backups
// and restores, once), Pending (waits for another claim), Failed (refused as it stands; the
// conditions say why; heals when the cause goes) or Deleting. The condition Ready says that
// it can be used, Synced that the spec as it stands was accepted.
//
// The servers outlive the automation, and cmd/automation -data DIR -stop ends them.
//
// One process at a time should run: a second one may order a server as its state was a moment ago.
package automation
