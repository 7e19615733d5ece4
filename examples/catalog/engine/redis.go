// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Redis runs Valkey or Redis. The folder of an instance has its contents in the folder
// that the link "data" points to, so that a restore is one rename.
type redis struct {
	*disk
	server, cli string
}

func findRedis() (server, cli string) {
	for _, name := range []string{"valkey", "redis"} {
		server, cli = find(nil, name+"-server"), find(nil, name+"-cli")
		if server != "" && cli != "" {
			return server, cli
		}
	}
	return "", ""
}

type redisServer struct {
	engine            *redis
	id, port, version string
}

// Run is that of Engine.
func (r *redis) Run(ctx context.Context, o Order) (Server, error) {
	if err := checkID(o.ID); err != nil {
		return nil, err
	}
	defer r.lock(o.ID)()
	if err := r.initialize(o.ID); err != nil {
		return nil, err
	}
	port, err := r.port(o.ID)
	if err != nil {
		return nil, err
	}
	s := &redisServer{engine: r, id: o.ID, port: port}
	if err := r.started(o.ID, s.start(ctx)); err != nil {
		return nil, err
	}
	info, err := s.command(ctx, "INFO server")
	if err != nil {
		return nil, err
	}
	s.version = versionOf(info)
	return s, s.configure(ctx, o)
}

func versionOf(info string) string {
	for _, name := range []string{"valkey", "redis"} {
		for line := range strings.Lines(info) {
			if version, ok := strings.CutPrefix(line, name+"_version:"); ok {
				return strings.ToUpper(name[:1]) + name[1:] + " " + strings.TrimSpace(version)
			}
		}
	}
	return ""
}

// initialize makes the folder of an instance. Users are in a file of the server's own.
func (r *redis) initialize(id string) error {
	if err := r.folder(id); err != nil || r.has(id, "data") {
		return err
	}
	password := r.read(id, "admin")
	if password == "" {
		password = rand.Text()
		if err := r.write(password, id, "admin"); err != nil {
			return err
		}
	}
	users := "user default off\nuser admin on #" + digest(password) + " ~* &* +@all\n"
	if err := errors.Join(r.write(users, id, "users.acl"), r.folder(id, "data-first")); err != nil {
		return err
	}
	return r.point(id, "data-first")
}

// point makes the link data lead to a folder, at once.
func (r *redis) point(id, folder string) error {
	temporary := r.path(id, "data.new")
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	if err := os.Symlink(folder, temporary); err != nil {
		return err
	}
	return r.rename(temporary, r.path(id, "data"))
}

func (s *redisServer) start(ctx context.Context) error {
	if _, err := s.command(ctx, "PING"); err == nil {
		return nil
	}
	config := fmt.Sprintf("bind 127.0.0.1\nport %s\ndaemonize yes\ndir %q\npidfile %q\nlogfile %q\naclfile %q\nappendonly yes\nappendfsync everysec\nsave \"\"\n",
		s.port, s.engine.path(s.id, "data"), s.engine.path(s.id, "pid"), s.engine.path(s.id, "log"), s.engine.path(s.id, "users.acl"))
	if err := s.engine.write(config, s.id, "server.conf"); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // to its end: a server whose start is broken off comes up when Stop has looked for it
	if _, err := s.engine.run(ctx, program{path: s.engine.server, args: []string{s.engine.path(s.id, "server.conf")}}); err != nil {
		return err
	}
	return s.answers(ctx)
}

// answers waits until the server has its contents in memory.
func (s *redisServer) answers(ctx context.Context) error {
	return retry(ctx, func() error {
		_, err := s.command(ctx, "PING")
		return err
	})
}

func (s *redisServer) configure(ctx context.Context, o Order) error {
	lines := []string{
		fmt.Sprintf("CONFIG SET maxclients %d", max(o.Connections, 4)),
		fmt.Sprintf("CONFIG SET maxmemory %dmb", max(o.MemoryMegaBytes, 1)),
	}
	for _, p := range [][2]string{{"maxMemoryPolicy", "maxmemory-policy"}, {"appendFsync", "appendfsync"}, {"timeoutSeconds", "timeout"}, {"notifyKeyspaceEvents", "notify-keyspace-events"}} {
		if v, ok := o.Parameters[p[0]]; ok && plain.MatchString(fmt.Sprint(v)) {
			lines = append(lines, fmt.Sprintf("CONFIG SET %s %v", p[1], v))
		}
	}
	_, err := s.command(ctx, lines...)
	return err
}

// plain is what needs no quotes in a command.
var plain = regexp.MustCompile(`^[A-Za-z0-9$.-]{1,128}$`)

// Endpoint is that of Server.
func (s *redisServer) Endpoint() Endpoint {
	return Endpoint{Scheme: "redis", Host: "127.0.0.1", Port: s.port, Database: "0", Version: s.version}
}

// Grant is that of Server.
func (s *redisServer) Grant(ctx context.Context, user, password string) error {
	if !plain.MatchString(user) || user == "admin" || user == "default" || len(password) < 16 {
		return fmt.Errorf("%q cannot be a user, or its password is shorter than 16 characters", user)
	}
	defer s.engine.lock(s.id)()
	list, err := s.command(ctx, "ACL LIST")
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		if strings.Contains(line, "user "+user+" on ") && strings.Contains(line, digest(password)) && strings.Contains(s.engine.read(s.id, "users.acl"), digest(password)) {
			return nil
		}
	}
	_, err = s.command(ctx, "ACL SETUSER "+user+" reset on #"+digest(password)+
		" ~* &* +@all -@admin -@dangerous +info +keys +flushdb +flushall", "ACL SAVE")
	return err
}

// Revoke is that of Server.
func (s *redisServer) Revoke(ctx context.Context, user string) error {
	if !plain.MatchString(user) || user == "admin" || user == "default" {
		return fmt.Errorf("%q cannot be a user", user)
	}
	defer s.engine.lock(s.id)()
	_, err := s.command(ctx, "ACL DELUSER "+user, "ACL SAVE")
	return err
}

// Dump is that of Server.
func (s *redisServer) Dump(ctx context.Context, backup string) (int64, error) {
	if err := checkID(backup); err != nil {
		return 0, err
	}
	defer s.engine.lock(s.id)()
	p := s.client()
	p.args, p.limit = append(p.args, "--rdb", s.engine.path(backups, backup+".new")), long
	if _, err := s.engine.run(ctx, p); err != nil {
		return 0, err
	}
	return s.engine.keep(backup)
}

// Load is that of Server. The new folder names its restore, and the link turns to it at
// once, so that the restore happens once, also when the process dies.
func (s *redisServer) Load(ctx context.Context, backup, restore string) error {
	if err := checkID(backup, restore); err != nil {
		return err
	}
	defer s.engine.lock(s.id)()
	done := strings.Fields(s.engine.read(s.id, "data", "restores"))
	if slices.Contains(done, restore) {
		if err := s.start(ctx); err != nil { // the process may have died after the rename
			return err
		}
		return s.sweep()
	}
	folder := "data-" + restore
	if err := errors.Join(s.engine.remove(s.id, folder), s.engine.folder(s.id, folder), s.engine.folder(s.id, folder, "appendonlydir")); err != nil {
		return err
	}
	// The append-only file of a new server may begin with a dump.
	rdb, err := os.ReadFile(s.engine.path(backups, backup))
	if err != nil {
		return err
	}
	err = errors.Join(
		s.engine.write(string(rdb), s.id, folder, "appendonlydir", "appendonly.aof.1.base.rdb"),
		s.engine.write("file appendonly.aof.1.base.rdb seq 1 type b\n", s.id, folder, "appendonlydir", "appendonly.aof.manifest"),
		s.engine.write(strings.Join(append(done[max(0, len(done)-31):], restore), "\n"), s.id, folder, "restores"))
	if err != nil {
		return err
	}
	if err := s.engine.halt(ctx, s.id); err != nil {
		return err
	}
	if err := s.engine.point(s.id, folder); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.sweep()
}

// sweep removes the folders that the link does not lead to any more.
func (s *redisServer) sweep() error {
	current, err := os.Readlink(s.engine.path(s.id, "data"))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(s.engine.path(s.id))
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "data-") && e.Name() != current {
			err = errors.Join(err, s.engine.remove(s.id, e.Name()))
		}
	}
	return err
}

// Remove is that of Engine.
func (r *redis) Remove(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	defer r.lock(id)()
	if err := r.halt(ctx, id); err != nil {
		return err
	}
	return r.remove(id)
}

// Stop is that of Engine.
func (r *redis) Stop(ctx context.Context) error {
	ids, err := r.instances()
	for _, id := range ids {
		err = errors.Join(err, r.halt(ctx, id))
	}
	return err
}

// halt stops the server of an instance if it runs: it answers as its own admin.
func (r *redis) halt(ctx context.Context, id string) error {
	s := &redisServer{engine: r, id: id, port: r.read(id, "port")}
	if s.port == "" {
		return nil
	}
	if _, err := s.command(ctx, "PING"); stopped(err) {
		return nil
	} else if err != nil && !strings.HasPrefix(err.Error(), "LOADING") {
		return err
	}
	_, _ = s.command(ctx, "SHUTDOWN NOSAVE") // it does not live to answer
	return retry(ctx, func() error {
		if _, err := s.command(ctx, "PING"); !stopped(err) {
			return fmt.Errorf("the server of %s does not stop", id)
		}
		return nil
	})
}

// stopped reports whether an answer shows that the server does not run: there is none,
// or it is that of another program, which has the port now.
func stopped(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "Connection refused") ||
		strings.HasPrefix(err.Error(), "WRONGPASS") || strings.HasPrefix(err.Error(), "NOAUTH"))
}

// command sends commands as the admin, whose password is not in the list of processes.
// An answer that is an error is one.
func (s *redisServer) command(ctx context.Context, lines ...string) (string, error) {
	p := s.client()
	p.stdin, p.strict = strings.Join(lines, "\n")+"\n", true
	out, err := s.engine.run(ctx, p)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if word, _, _ := strings.Cut(strings.TrimPrefix(line, "(error) "), " "); failures.MatchString(word) {
			return "", errors.New(strings.TrimSpace(line))
		}
	}
	return out, nil
}

var failures = regexp.MustCompile(`^(ERR|NOAUTH|NOPERM|WRONGPASS|LOADING|MISCONF|OOM|MASTERDOWN|READONLY)$`)

func (s *redisServer) client() program {
	return program{path: s.engine.cli, args: []string{"-h", "127.0.0.1", "-p", s.port, "--user", "admin", "--no-auth-warning"}, env: []string{"REDISCLI_AUTH=" + s.engine.read(s.id, "admin")}}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
