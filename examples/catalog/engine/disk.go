// SPDX-License-Identifier: Apache-2.0

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

// A disk is the folder of one engine: a folder of each instance, and "backups".
type disk struct {
	dir   string
	user  user // of the servers
	locks Locks
}

func newDisk(dir string) (*disk, error) {
	d := &disk{dir: dir, user: serverUser()}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	// The servers' user must reach its folder, and no other user need.
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
func (d *disk) lock(id string) (unlock func()) { return d.locks.Lock(id) }

// Locks make work on one thing wait for other work on it, by its name. The zero value is ready.
type Locks struct{ byName sync.Map }

// Lock waits until nothing else has the lock of name.
func (l *Locks) Lock(name string) (unlock func()) {
	m, _ := l.byName.LoadOrStore(name, &sync.Mutex{})
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
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // asks for a number, and opens no connection
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
