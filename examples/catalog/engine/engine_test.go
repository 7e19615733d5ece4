// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

const (
	id       = "0a1b2c3d-0000-0000-0000-000000000001"
	password = `it's-a "password" \ with $signs`
)

// TestPsql: psql is found where the servers are, also with none on the PATH.
func TestPsql(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if findPostgres() == "" {
		t.Skip("PostgreSQL is not installed")
	}
	if out, err := exec.Command(Psql(), "--version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "psql ") {
		t.Errorf("%s: %v, %s", Psql(), err, out)
	}
}

// A client is what an application does with each data service.
type client struct {
	service           string
	write, read, lose string
	limit             string // asks for the number of connections
}

var clients = []client{
	{"postgresql", "CREATE TABLE orders (n int); INSERT INTO orders VALUES (42);", "SELECT n FROM orders;", "DROP TABLE orders;", "SHOW max_connections;"},
	{"keyvalue", "SET orders 42", "GET orders", "FLUSHALL", ""},
}

// as runs a command with a login; what goes wrong is in the answer.
func (c client) as(e Endpoint, user, password, command string) string {
	var cmd *exec.Cmd
	if c.service == "postgresql" {
		cmd = exec.Command(filepath.Join(findPostgres(), "psql"), "-h", e.Host, "-p", e.Port, "-U", user, "-d", e.Database, "-w", "-X", "-q", "-A", "-t")
		cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	} else {
		_, cli := findRedis()
		cmd = exec.Command(cli, "-h", e.Host, "-p", e.Port, "--user", user, "--no-auth-warning")
		cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+password)
	}
	cmd.Stdin = strings.NewReader(command + "\n")
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out))
}

func found(t *testing.T, dir, service string) Engine {
	t.Helper()
	engines, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	if engines[service] == nil {
		t.Skipf("%s is not installed", service)
	}
	t.Cleanup(func() {
		if err := Stop(context.WithoutCancel(t.Context()), dir); err != nil {
			t.Error(err)
		}
	})
	return engines[service]
}

// folder is one that another user may enter, and short enough for a socket.
func folder(t *testing.T) string {
	t.Helper()
	return tempdir.ForTest(t, "engine") // t.TempDir is too long for a socket
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, e Engine, connections int) Server {
	t.Helper()
	s, err := e.Run(t.Context(), Order{ID: id, Connections: connections, MemoryMegaBytes: 16, Parameters: map[string]any{"statementTimeoutMillis": int64(0)}})
	check(t, err)
	return s
}

func (c client) want(t *testing.T, s Server, command, want string) {
	t.Helper()
	if got := c.as(s.Endpoint(), "dana", password, command); got != want {
		t.Errorf("%s: %q, want %q", command, got, want)
	}
}

// TestEngine goes through the life of an instance with the clients that people use.
func TestEngine(t *testing.T) {
	for _, c := range clients {
		t.Run(c.service, func(t *testing.T) {
			dir := folder(t)
			e := found(t, dir, c.service)
			s := run(t, e, 50)
			check(t, s.Grant(t.Context(), "dana", password))
			c.as(s.Endpoint(), "dana", password, c.write)
			c.want(t, s, c.read, "42")

			_, err := s.Dump(t.Context(), "backup-1")
			check(t, err)
			c.as(s.Endpoint(), "dana", password, c.lose)
			check(t, s.Load(t.Context(), "backup-1", "restore-1"))
			c.want(t, s, c.read, "42")
			c.as(s.Endpoint(), "dana", password, c.lose)
			check(t, s.Load(t.Context(), "backup-1", "restore-1"))
			if got := c.as(s.Endpoint(), "dana", password, c.read); got == "42" {
				t.Error("restored a second time")
			}
			check(t, s.Load(t.Context(), "backup-1", "restore-2"))

			grown := run(t, e, 100)
			if grown.Endpoint() != s.Endpoint() {
				t.Errorf("was at %v, is at %v", s.Endpoint(), grown.Endpoint())
			}
			c.want(t, grown, c.read, "42")
			if c.limit != "" {
				c.want(t, grown, c.limit, "100")
			}
			c.wantCrashSurvived(t, dir, e)

			check(t, grown.Revoke(t.Context(), "dana"))
			if got := c.as(s.Endpoint(), "dana", password, c.read); !strings.Contains(got, "authentication failed") && !strings.Contains(got, "WRONGPASS") {
				t.Errorf("after the revocation: %q", got)
			}
			check(t, grown.Revoke(t.Context(), "dana"))
			check(t, e.Discard(t.Context(), "backup-1"))
			wantRemoved(t, dir, e, c, s.Endpoint())
		})
	}
}

// wantCrashSurvived kills the server itself.
func (c client) wantCrashSurvived(t *testing.T, dir string, e Engine) {
	t.Helper()
	name := map[string]string{"postgresql": "data/postmaster.pid", "keyvalue": "pid"}[c.service]
	text, err := os.ReadFile(filepath.Join(dir, c.service, id, name))
	check(t, err)
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	check(t, err)
	time.Sleep(1100 * time.Millisecond) // the append-only file is written once a second
	check(t, syscall.Kill(pid, syscall.SIGKILL))
	check(t, retry(t.Context(), func() error {
		s, err := e.Run(t.Context(), Order{ID: id, Connections: 100, MemoryMegaBytes: 16, Parameters: map[string]any{"statementTimeoutMillis": int64(0)}})
		if err == nil {
			c.want(t, s, c.read, "42")
		}
		return err
	}))
}

func wantRemoved(t *testing.T, dir string, e Engine, c client, at Endpoint) {
	t.Helper()
	check(t, e.Remove(t.Context(), id))
	check(t, e.Remove(t.Context(), id))
	if got := c.as(at, "dana", password, c.read); !strings.Contains(got, "refused") {
		t.Errorf("after the removal: %q", got)
	}
	left, err := filepath.Glob(filepath.Join(dir, c.service, "*", "*"))
	check(t, err)
	more, err := filepath.Glob(filepath.Join(dir, c.service, "*"))
	check(t, err)
	if len(left) > 0 || len(more) != 1 {
		t.Errorf("left behind: %q %q", left, more)
	}
}

// TestLoginsAreEqual: what one login made, the next one owns, also what the first one
// made without the shared role; and none reaches beyond its database.
func TestLoginsAreEqual(t *testing.T) {
	e := found(t, folder(t), "postgresql")
	c, s := clients[0], run(t, e, 50)
	at := s.Endpoint()
	check(t, s.Grant(t.Context(), `o'brien "x"`, password))
	c.as(at, `o'brien "x"`, password, c.write)
	c.as(at, `o'brien "x"`, password, "RESET ROLE; CREATE SCHEMA own; SET ROLE none; CREATE TABLE own.more (n int);")
	check(t, s.Revoke(t.Context(), `o'brien "x"`))
	check(t, s.Grant(t.Context(), "dana", password))
	c.want(t, s, "DROP TABLE orders;", "")
	for _, command := range []string{"COPY orders FROM PROGRAM 'id'", "CREATE ROLE boss SUPERUSER", "SET SESSION AUTHORIZATION postgres", "CREATE DATABASE x"} {
		if got := c.as(at, "dana", password, command); !strings.Contains(got, "ermission denied") && !strings.Contains(got, "must be") && !strings.Contains(got, "does not exist") {
			t.Errorf("%s: %q", command, got)
		}
	}
	at.Database = "postgres"
	if got := c.as(at, "dana", password, "SELECT 1"); !strings.Contains(got, "pg_hba") {
		t.Errorf("another database: %q", got)
	}
	if got := c.as(s.Endpoint(), "postgres", "", "SELECT 1"); strings.HasPrefix(got, "1") {
		t.Error("the superuser logs in without a password")
	}
}

// TestNoLoginIsLeft: the shared role is no way to log in, also when a user gave it a password.
func TestNoLoginIsLeft(t *testing.T) {
	e := found(t, folder(t), "postgresql")
	c, s := clients[0], run(t, e, 50)
	check(t, s.Grant(t.Context(), "dana", password))
	c.want(t, s, "ALTER ROLE "+owner+" PASSWORD 'a way to come back'", "")
	check(t, s.Revoke(t.Context(), "dana"))
	if got := c.as(s.Endpoint(), owner, "a way to come back", "SELECT 1"); !strings.Contains(got, "pg_hba.conf rejects") {
		t.Errorf("after the revocation: %q", got)
	}
}

// TestDeepFolder: the path of a socket has no room for that of the data.
func TestDeepFolder(t *testing.T) {
	top := folder(t)
	check(t, os.Chmod(top, 0o711)) //nolint:gosec // the servers' user enters it
	dir := filepath.Join(top, strings.Repeat("deep", 30))
	e := found(t, dir, "postgresql")
	s := run(t, e, 50)
	check(t, s.Grant(t.Context(), "dana", password))
	clients[0].want(t, s, "SELECT 1", "1")
	p, _ := e.(*postgres)
	sockets := p.sockets(id)
	if _, err := os.Stat(sockets); err != nil {
		t.Error(err)
	}
	check(t, e.Stop(t.Context()))
	if _, err := os.Stat(sockets); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", sockets, err)
	}
	run(t, e, 50)
	check(t, e.Remove(t.Context(), id))
	if _, err := os.Stat(sockets); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", sockets, err)
	}
	check(t, os.Symlink(top, sockets))
	defer func() { check(t, os.Remove(sockets)) }()
	if _, err := e.Run(t.Context(), Order{ID: id}); err == nil || !strings.Contains(err.Error(), sockets) {
		t.Errorf("a link of another's: %v", err)
	}
}

// TestClosedFolder: the error says what the servers' user may not enter.
func TestClosedFolder(t *testing.T) {
	if !serverUser().other {
		t.Skip("the servers' user is this one")
	}
	top := folder(t)
	e := found(t, filepath.Join(top, "a", "b"), "postgresql")
	if _, err := e.Run(t.Context(), Order{ID: id}); err == nil || !strings.Contains(err.Error(), "the servers' user may not enter "+top) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "..", "a/b", "backups", "-x", strings.Repeat("a", 64)} {
		if checkID(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := scram("dana", "short"); err == nil {
		t.Error("a short password is taken")
	}
	if _, err := scram("dana\n", password); err == nil {
		t.Error("a line break in a name is taken")
	}
}

var killsEvery = flag.Int("every", 9, "TestKilled kills at every so many-th point; 1 takes minutes")

// TestKilled lets the process die at programs that it runs and files that it renames or
// removes, and another one finish its work: at all of them with -every 1.
func TestKilled(t *testing.T) {
	cluster.Long(t) // it starts servers some hundred times
	for _, c := range clients {
		// A short life begins with nothing each time; a full one goes on with what is there.
		for _, kind := range []string{"short", "full"} {
			t.Run(c.service+"/"+kind, func(t *testing.T) {
				dir := folder(t)
				e := found(t, dir, c.service)
				points := 0
				for ; life(t, dir, c, kind, points); points += *killsEvery {
					if points > 300 {
						t.Fatal("there is no end of points")
					}
					s := wantLife(t, dir, c, e)
					if kind == "short" {
						wantRemoved(t, dir, e, c, s.Endpoint())
					}
				}
				t.Logf("%d points", points)
				if points < 5 {
					t.Errorf("only %d points", points)
				}
			})
		}
	}
}

// life runs a life of an instance in a process that is killed at a point.
func life(t *testing.T, dir string, c client, kind string, point int) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLife$", "-test.count=1")
	cmd.Env = append(os.Environ(), "ENGINE_LIFE="+dir, "ENGINE_SERVICE="+c.service, "ENGINE_KIND="+kind, fmt.Sprintf("ENGINE_POINT=%d", point))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if exit, ok := err.(*exec.ExitError); !ok || !exit.Sys().(syscall.WaitStatus).Signaled() { //nolint:errorlint // as Cmd returns it
		t.Fatalf("point %d: %v\n%s", point, err, out)
	}
	return true
}

// wantLife finishes what was interrupted, and asks for all of it.
func wantLife(t *testing.T, dir string, c client, e Engine) Server {
	t.Helper()
	var s Server
	check(t, retry(t.Context(), func() (err error) { // a server may still be starting
		s, err = e.Run(t.Context(), Order{ID: id, Connections: 60, MemoryMegaBytes: 16})
		return err
	}))
	check(t, s.Grant(t.Context(), "dana", password))
	c.as(s.Endpoint(), "dana", password, c.lose)
	c.as(s.Endpoint(), "dana", password, c.write)
	_, err := s.Dump(t.Context(), "backup-2")
	check(t, err)
	c.as(s.Endpoint(), "dana", password, c.lose)
	restores++
	check(t, s.Load(t.Context(), "backup-2", fmt.Sprintf("restore-again-%d", restores)))
	c.want(t, s, c.read, "42")
	check(t, s.Revoke(t.Context(), "dana"))
	check(t, e.Discard(t.Context(), "backup-1"))
	check(t, e.Discard(t.Context(), "backup-2"))
	return s
}

var restores int

// TestLife is the process that TestKilled kills.
func TestLife(t *testing.T) {
	dir := os.Getenv("ENGINE_LIFE")
	if dir == "" {
		t.Skip("runs inside TestKilled")
	}
	last, err := strconv.Atoi(os.Getenv("ENGINE_POINT"))
	check(t, err)
	seen := 0
	reached = func(string) {
		if seen++; seen > last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	engines, err := Find(dir)
	check(t, err)
	e := engines[os.Getenv("ENGINE_SERVICE")]
	s := run(t, e, 50)
	check(t, s.Grant(t.Context(), "dana", password))
	if os.Getenv("ENGINE_KIND") == "short" {
		check(t, e.Remove(t.Context(), id))
		return
	}
	_, err = s.Dump(t.Context(), "backup-1")
	check(t, err)
	check(t, s.Load(t.Context(), "backup-1", "restore-"+strconv.Itoa(last)))
	check(t, s.Revoke(t.Context(), "dana"))
	check(t, e.Discard(t.Context(), "backup-1"))
}
