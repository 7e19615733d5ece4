// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Postgres runs PostgreSQL. Each instance has one database, whose objects all belong to
// the role owner: logins come and go, what they made stays.
type postgres struct {
	*disk
	bin string // folder of its programs
}

const (
	database = "main"
	owner    = "main_owner"
)

// findPostgres returns the folder of initdb and the others, those of the newest version.
func findPostgres() string {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well formed
	slices.SortFunc(folders, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(b, a)) })
	initdb := find(folders, "initdb")
	if initdb == "" {
		return ""
	}
	if file, err := filepath.EvalSymlinks(initdb); err == nil {
		initdb = file
	}
	bin := filepath.Dir(initdb)
	for _, program := range []string{"pg_ctl", "pg_dump", "psql"} {
		if find([]string{bin}, program) == "" {
			return ""
		}
	}
	return bin
}

type postgresServer struct {
	engine            *postgres
	id, port, version string
}

// Run is that of Engine.
func (p *postgres) Run(ctx context.Context, o Order) (Server, error) {
	if err := checkID(o.ID); err != nil {
		return nil, err
	}
	defer p.lock(o.ID)()
	if err := p.initialize(ctx, o.ID); err != nil {
		return nil, err
	}
	port, err := p.port(o.ID)
	if err != nil {
		return nil, err
	}
	s := &postgresServer{engine: p, id: o.ID, port: port}
	if err := p.started(o.ID, s.start(ctx, o)); err != nil {
		return nil, err
	}
	s.version, err = s.query(ctx, "postgres", `SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)`)
	if err != nil {
		return nil, err
	}
	return s, s.prepare(ctx)
}

// initialize makes the data folder of an instance, whole or not at all.
func (p *postgres) initialize(ctx context.Context, id string) error {
	if err := errors.Join(p.folder(id), p.openSockets(id)); err != nil || p.has(id, "data") {
		return err
	}
	if err := p.remove(id, "data.new"); err != nil {
		return err
	}
	_, err := p.run(ctx, program{path: p.program("initdb"), args: []string{
		"-D", p.path(id, "data.new"), "-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "trust", "-N",
	}})
	if err != nil {
		return err
	}
	return p.rename(p.path(id, "data.new"), p.path(id, "data"))
}

// access is for this package by the socket, in a folder that only the servers' user enters, and for
// users by TCP. A user may give the shared role a password, which is to be none.
const access = "local all all trust\nhost all " + owner + " 127.0.0.1/32 reject\nhost " + database + " all 127.0.0.1/32 scram-sha-256\n"

// sockets is the folder of an instance's socket, whose path may have some hundred bytes: where the
// data lies deeper, it is another one, in /tmp.
func (p *postgres) sockets(id string) string {
	const room = 103 // bytes on BSD and macOS; Linux has 107
	dir := p.path(id, "s")
	if len(dir)+len("/.s.PGSQL.65535") > room {
		dir = filepath.Join("/tmp", "klutch-"+digest(dir)[:24])
	}
	return dir
}

// openSockets makes the folder, unless it is there and no other user's.
func (p *postgres) openSockets(id string) error {
	dir := p.sockets(id)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || !p.user.owns(info) {
		return errors.Join(fmt.Errorf("%s is not a folder of the servers' user alone", dir), err)
	}
	return p.user.own(dir)
}

// start sees to it that the server runs with the settings of the order. The running
// server itself says which settings it read: klutch.settings is their digest.
func (s *postgresServer) start(ctx context.Context, o Order) error {
	config := settings(o)
	want := digest(config + access)
	has, err := s.query(ctx, "postgres", "SELECT current_setting('klutch.settings', true)")
	if err == nil && has == want {
		return nil
	}
	config += fmt.Sprintf("port = %s\nunix_socket_directories = %s\nlisten_addresses = '127.0.0.1'\nklutch.settings = '%s'\n",
		s.port, literal(s.engine.sockets(s.id)), want)
	if err := errors.Join(s.engine.write(access, s.id, "data", "pg_hba.conf"), s.engine.write(config, s.id, "data", "postgresql.conf")); err != nil {
		return err
	}
	if err := s.engine.halt(ctx, s.id); err != nil {
		return err
	}
	// To its end: a server whose start is broken off comes up when Stop has looked for it.
	_, err = s.engine.run(context.WithoutCancel(ctx), program{path: s.engine.program("pg_ctl"), args: []string{
		"start", "-s", "-w", "-t", "50", "-D", s.engine.path(s.id, "data"), "-l", s.engine.path(s.id, "log"),
	}})
	return err
}

// settings of the server. Those of the plan win over what a claim asks for.
func settings(o Order) string {
	var b strings.Builder
	set := func(name, value string) { fmt.Fprintf(&b, "%s = %s\n", name, literal(value)) }
	for _, p := range []struct{ parameter, setting, unit string }{
		{"logMinDurationStatementMillis", "log_min_duration_statement", "ms"},
		{"statementTimeoutMillis", "statement_timeout", "ms"},
		{"idleInTransactionSessionTimeoutMillis", "idle_in_transaction_session_timeout", "ms"},
		{"lockTimeoutMillis", "lock_timeout", "ms"},
		{"workMemKiloBytes", "work_mem", "kB"},
		{"synchronousCommit", "synchronous_commit", ""},
	} {
		if v, ok := o.Parameters[p.parameter]; ok {
			unit := p.unit
			if text := fmt.Sprint(v); text == "0" || text == "-1" {
				unit = ""
			}
			set(p.setting, fmt.Sprint(v)+unit)
		}
	}
	// Three connections are kept for this package.
	set("max_connections", strconv.Itoa(max(o.Connections, 4)))
	set("shared_buffers", strconv.Itoa(max(o.MemoryMegaBytes, 1))+"MB")
	set("password_encryption", "scram-sha-256")
	return b.String()
}

// prepare makes the database and its owner, and keeps other databases to the superuser.
func (s *postgresServer) prepare(ctx context.Context) error {
	if s.engine.has(s.id, "prepared") {
		return nil
	}
	if _, err := s.query(ctx, "postgres", fmt.Sprintf(`DO $$ BEGIN
		IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%[1]s') THEN CREATE ROLE %[1]s LOGIN; END IF;
		REVOKE CONNECT ON DATABASE postgres, template1 FROM PUBLIC;
	END $$`, owner)); err != nil {
		return err
	}
	found, err := s.query(ctx, "postgres", "SELECT count(*) FROM pg_database WHERE datname = '"+database+"'")
	if err == nil && found == "0" {
		_, err = s.query(ctx, "postgres", "CREATE DATABASE "+database+" OWNER "+owner)
	}
	if err != nil {
		return err
	}
	_, err = s.query(ctx, database, "REVOKE ALL ON DATABASE "+database+" FROM PUBLIC")
	if err != nil {
		return err
	}
	return s.engine.write("", s.id, "prepared")
}

// Endpoint is that of Server.
func (s *postgresServer) Endpoint() Endpoint {
	return Endpoint{Scheme: "postgresql", Host: "127.0.0.1", Port: s.port, Database: database, Version: s.version}
}

// Grant is that of Server. The server gets the verifier of the password alone.
func (s *postgresServer) Grant(ctx context.Context, user, password string) error {
	defer s.engine.lock(s.id)()
	verifier, err := scram(user, password)
	if err != nil {
		return err
	}
	has, err := s.query(ctx, "postgres", "SELECT rolpassword FROM pg_authid WHERE rolname = "+literal(user))
	if err != nil || has == verifier {
		return err
	}
	// One transaction: a login that can do nothing is never seen.
	_, err = s.query(ctx, database, fmt.Sprintf(`BEGIN; DO $$ BEGIN
		IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = %[2]s) THEN CREATE ROLE %[1]s; END IF;
	END $$;
	ALTER ROLE %[1]s NOSUPERUSER NOCREATEDB NOCREATEROLE LOGIN PASSWORD %[3]s;
	GRANT %[4]s TO %[1]s; ALTER ROLE %[1]s IN DATABASE %[5]s SET role = %[4]s; COMMIT`,
		identifier(user), literal(user), literal(verifier), owner, database))
	return err
}

// Revoke is that of Server.
func (s *postgresServer) Revoke(ctx context.Context, user string) error {
	defer s.engine.lock(s.id)()
	found, err := s.query(ctx, "postgres", "SELECT count(*) FROM pg_roles WHERE rolname = "+literal(user))
	if err != nil || found == "0" {
		return err
	}
	_, err = s.query(ctx, database, fmt.Sprintf(`ALTER ROLE %[1]s NOLOGIN;
	SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %[2]s;
	BEGIN; REASSIGN OWNED BY %[1]s TO %[3]s; DROP OWNED BY %[1]s; DROP ROLE %[1]s; COMMIT`,
		identifier(user), literal(user), owner))
	return err
}

// Dump is that of Server.
func (s *postgresServer) Dump(ctx context.Context, backup string) (int64, error) {
	if err := checkID(backup); err != nil {
		return 0, err
	}
	defer s.engine.lock(s.id)()
	_, err := s.engine.run(ctx, program{path: s.engine.program("pg_dump"), limit: long, args: append(s.connect(owner),
		"-d", database, "--no-owner", "--no-privileges", "--lock-wait-timeout=30s", "-f", s.engine.path(backups, backup+".new"))})
	if err != nil {
		return 0, err
	}
	return s.engine.keep(backup)
}

// Load is that of Server. One transaction empties the database, fills it and notes the
// restore in the database's comment, so that it happens once, also when the process dies.
func (s *postgresServer) Load(ctx context.Context, backup, restore string) error {
	if err := checkID(backup, restore); err != nil {
		return err
	}
	defer s.engine.lock(s.id)()
	comment, err := s.query(ctx, database, "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()")
	if err != nil {
		return err
	}
	done := strings.Fields(comment)
	if slices.Contains(done, restore) {
		return nil
	}
	done = append(done[max(0, len(done)-31):], restore)
	if _, err := s.query(ctx, "postgres", "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '"+database+"'"); err != nil {
		return err
	}
	// As the owner, so that nothing in a dump gets the rights of the superuser.
	_, err = s.engine.run(ctx, program{path: s.engine.program("psql"), limit: long, args: append(s.connect(owner), "-d", database,
		"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=terse", "--single-transaction",
		"-c", "SET lock_timeout = '30s'; DROP OWNED BY "+owner,
		"-c", "CREATE SCHEMA IF NOT EXISTS public",
		"-f", s.engine.path(backups, backup),
		"-c", "COMMENT ON DATABASE "+database+" IS "+literal(strings.Join(done, " ")))})
	return err
}

// Remove is that of Engine.
func (p *postgres) Remove(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	defer p.lock(id)()
	if err := p.end(ctx, id); err != nil {
		return err
	}
	return p.remove(id)
}

// Stop is that of Engine.
func (p *postgres) Stop(ctx context.Context) error {
	ids, err := p.instances()
	for _, id := range ids {
		err = errors.Join(err, p.end(ctx, id))
	}
	return err
}

// end stops the server of an instance, and removes the folder of its socket, until it is run again.
func (p *postgres) end(ctx context.Context, id string) error {
	if err := p.halt(ctx, id); err != nil {
		return err
	}
	reached("before removal of the socket's folder")
	return os.RemoveAll(p.sockets(id))
}

// halt stops the server of an instance if it runs.
func (p *postgres) halt(ctx context.Context, id string) error {
	for _, mode := range []string{"fast", "immediate"} {
		if !p.has(id, "data", "postmaster.pid") {
			return nil
		}
		_, err := p.run(ctx, program{path: p.program("pg_ctl"), args: []string{"stop", "-s", "-w", "-t", "20", "-m", mode, "-D", p.path(id, "data")}})
		if err == nil {
			return nil
		}
	}
	// The file of a server that was killed stays behind.
	if _, err := p.run(ctx, program{path: p.program("pg_ctl"), args: []string{"status", "-D", p.path(id, "data")}}); err == nil {
		return fmt.Errorf("the server of %s does not stop", id)
	}
	return nil
}

func (p *postgres) program(name string) string { return filepath.Join(p.bin, name) }

func (s *postgresServer) connect(role string) []string {
	return []string{"-h", s.engine.sockets(s.id), "-p", s.port, "-U", role, "-w"}
}

// query runs SQL as the superuser, through the socket; it is not in the list of processes.
func (s *postgresServer) query(ctx context.Context, db, sql string) (string, error) {
	return s.engine.run(ctx, program{
		path: s.engine.program("psql"), stdin: sql + ";\n", env: []string{"PGCONNECT_TIMEOUT=10", "PGOPTIONS=-c statement_timeout=50s"},
		args: append(s.connect("postgres"), "-d", db, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=terse"),
	})
}

// identifier and literal quote for SQL, with standard_conforming_strings.
func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func literal(text string) string    { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }

// scram returns what PostgreSQL stores of a password, the same one each time. It takes
// printable ASCII: what a password prepared for SCRAM may change, it refuses.
func scram(user, password string) (string, error) {
	if user == "" || len(user) > 63 || !printable(user) || len(password) < 16 || !printable(password) {
		return "", errors.New("a user has 1 to 63 characters and a password at least 16, all printable ASCII")
	}
	sum := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		_, _ = h.Write([]byte(text))
		return h.Sum(nil)
	}
	const rounds = 4096
	salt := sum([]byte(password), user)[:16]
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	stored := sha256.Sum256(sum(salted, "Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, b64(salt), b64(stored[:]), b64(sum(salted, "Server Key"))), nil
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
