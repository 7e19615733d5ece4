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

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

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

// Find returns the engines whose programs are installed, by serviceInstanceType. Their
// data is under dir.
func Find(dir string) (map[string]Engine, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]Engine{}
	if bin := findPostgres(); bin != "" {
		d, err := newDisk(filepath.Join(dir, "postgresql"))
		if err != nil {
			return nil, err
		}
		out["postgresql"] = &postgres{disk: d, bin: bin}
	}
	if server, cli := findRedis(); server != "" {
		d, err := newDisk(filepath.Join(dir, "keyvalue"))
		if err != nil {
			return nil, err
		}
		out["keyvalue"] = &redis{disk: d, server: server, cli: cli}
	}
	return out, nil
}

// Stop ends all servers whose data is under dir.
func Stop(ctx context.Context, dir string) error {
	engines, err := Find(dir)
	for _, e := range engines {
		err = errors.Join(err, e.Stop(ctx))
	}
	return err
}

// A disk is the folder of one engine: a folder of each instance, and "backups".
type disk struct {
	dir   string
	user  user // of the servers
	locks sync.Map
}

func newDisk(dir string) (*disk, error) {
	d := &disk{dir: dir, user: serverUser()}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	// The servers' user must reach its folder, and nobody else need.
	for _, folder := range []string{filepath.Dir(dir), dir} {
		if err := errors.Join(os.Chmod(folder, 0o711), d.user.own(folder)); err != nil {
			return nil, err
		}
	}
	return d, d.folder("backups")
}

const backups = "backups"

var safe = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

func checkID(ids ...string) error {
	for _, id := range ids {
		if !safe.MatchString(id) || id == backups {
			return fmt.Errorf("%q is not an identifier", id)
		}
	}
	return nil
}

// lock makes the work on one instance wait for other work on it.
func (d *disk) lock(id string) (unlock func()) {
	m, _ := d.locks.LoadOrStore(id, &sync.Mutex{})
	mu, _ := m.(*sync.Mutex)
	mu.Lock()
	return mu.Unlock
}

func (d *disk) path(parts ...string) string {
	return filepath.Join(append([]string{d.dir}, parts...)...)
}

// folder makes a folder that only the servers' user reads.
func (d *disk) folder(parts ...string) error {
	path := d.path(parts...)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return d.user.own(path)
}

// write replaces a file of the servers' user at once.
func (d *disk) write(content string, parts ...string) error {
	path := d.path(parts...)
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		return err
	}
	if err := d.user.own(temporary); err != nil {
		return err
	}
	return d.rename(temporary, path)
}

func (d *disk) rename(from, to string) error {
	reached("before rename to " + filepath.Base(to))
	defer reached("after rename to " + filepath.Base(to))
	return os.Rename(from, to)
}

func (d *disk) read(parts ...string) string {
	text, err := os.ReadFile(d.path(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (d *disk) has(parts ...string) bool {
	_, err := os.Stat(d.path(parts...))
	return err == nil
}

func (d *disk) remove(parts ...string) error {
	reached("before removal of " + parts[len(parts)-1])
	return os.RemoveAll(d.path(parts...))
}

// Discard is that of Engine.
func (d *disk) Discard(_ context.Context, backup string) error {
	if err := checkID(backup); err != nil {
		return err
	}
	return errors.Join(d.remove(backups, backup), d.remove(backups, backup+".new"))
}

// keep makes a finished dump the backup of that name.
func (d *disk) keep(backup string) (int64, error) {
	if err := d.rename(d.path(backups, backup+".new"), d.path(backups, backup)); err != nil {
		return 0, err
	}
	info, err := os.Stat(d.path(backups, backup))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// instances returns the IDs of all instances.
func (d *disk) instances() ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && checkID(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	return out, err
}

// port returns the loopback port of an instance, the same for ever once it has served.
func (d *disk) port(id string) (string, error) {
	if port := d.read(id, "port"); port != "" {
		return port, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // asks for a number, talks to nobody
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	return port, d.write(port, id, "port")
}

// started notes whether the first start succeeded: until then the port may change.
func (d *disk) started(id string, err error) error {
	switch {
	case d.has(id, "served"):
		return err
	case err != nil:
		return errors.Join(err, d.remove(id, "port"))
	}
	return d.write("", id, "served")
}

// reached is called at each point at which a test kills the process.
var reached = func(string) {}
