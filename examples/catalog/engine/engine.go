// SPDX-License-Identifier: Apache-2.0

// Package engine runs the servers of data services on this machine: PostgreSQL and
// Valkey or Redis, from the programs that the distribution installs. A further data
// service is one more implementation of Engine and Server.
//
//	engines, err := engine.Find("/var/lib/data-services")
//	server, err := engines["postgresql"].Run(ctx, engine.Order{ID: uid, Connections: 50, MemoryMegaBytes: 16})
//	err = server.Grant(ctx, "dana", password)
//
// All state is on disk under the names that the caller gives, and each method can be
// called again after it was interrupted at any point. Servers run on after the process
// that started them ends.
package engine

import "context"

// An Order is an instance as it shall be. Its ID names it for ever.
type Order struct {
	ID              string
	Connections     int
	MemoryMegaBytes int
	// Parameters are those of the claim; an engine uses the ones that it knows.
	Parameters map[string]any
}

// An Endpoint is where a server listens, and the database for its users.
type Endpoint struct {
	Scheme, Host, Port, Database string
	Version                      string
}

// An Engine runs the instances of one data service.
type Engine interface {
	// Run returns the server of an instance, made, started or changed as ordered.
	Run(ctx context.Context, o Order) (Server, error)
	// Remove stops the server of an instance and deletes its data. None is no error.
	Remove(ctx context.Context, id string) error
	// Discard deletes a backup. None is no error.
	Discard(ctx context.Context, backup string) error
	// Stop ends the servers of all instances; Run starts them again.
	Stop(ctx context.Context) error
}

// A Server is a running instance.
type Server interface {
	Endpoint() Endpoint
	// Grant lets a user log in with this password and no other.
	Grant(ctx context.Context, user, password string) error
	// Revoke takes the login away and ends its sessions. None is no error.
	Revoke(ctx context.Context, user string) error
	// Dump keeps the contents under the name of a backup and returns their size in bytes.
	Dump(ctx context.Context, backup string) (int64, error)
	// Load puts the contents of a backup in the place of those that are there, once
	// for each restore: a second call with its name does nothing.
	Load(ctx context.Context, backup, restore string) error
}
