// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package tempdir makes temporary directories of which nothing stays behind, also when the
// process that made them is killed: a process locks its directories, and each call removes
// the directories that no process has locked. Logs for people to read stay for a day.
//
//	dir, remove, err := tempdir.Make("stack")
//	if err != nil {
//		return err
//	}
//	defer remove()
//
// A directory of t.TempDir stays when its test is killed. It is for what is small.
package tempdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	locked = "klutch-tmp-" // prefix of directories that go with their process
	logs   = "klutch-logs-"
	kept   = 24 * time.Hour
)

// Make makes a directory, which remove removes; a second call of remove does nothing. If this
// process ends before it calls that, the next call of Make or Logs removes it, in any process.
func Make(name string) (dir string, remove func() error, err error) {
	sweep()
	for {
		if dir, err = os.MkdirTemp("", locked+name+"-"); err != nil {
			return "", nil, err
		}
		unlock, err := lock(dir, 0)
		switch {
		case err == nil:
			return dir, func() error { defer unlock(); return os.RemoveAll(dir) }, nil
		case !errors.Is(err, fs.ErrNotExist): // as when another process has swept it before it was locked
			return "", nil, errors.Join(err, os.Remove(dir))
		}
	}
}

// ForTest makes a directory that is removed when the test ends.
func ForTest(tb testing.TB, name string) string {
	tb.Helper()
	dir, remove, err := Make(name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := remove(); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// Logs makes a directory that stays for a day, for logs that people are told of.
func Logs(name string) (dir string, err error) {
	sweep()
	return os.MkdirTemp("", logs+name+"-")
}

// sweep removes what processes that have ended left, and old logs. What it cannot remove now is
// for the next one.
func sweep() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), locked+"*")) // the pattern is well formed
	for _, dir := range left {
		if unlock, err := lock(dir, syscall.LOCK_NB); err == nil {
			_ = os.RemoveAll(dir)
			unlock()
		}
	}
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), logs+"*")) // the pattern is well formed
	for _, dir := range old {
		if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > kept {
			_ = os.RemoveAll(dir)
		}
	}
}

// lock locks a directory until unlock or the end of this process. It waits for another lock,
// unless how says LOCK_NB. The descriptor is no os.File, which a garbage collection may close.
func lock(dir string, how int) (unlock func(), err error) {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(fd, syscall.LOCK_EX|how)
	}
	if err != nil {
		err = &fs.PathError{Op: "lock", Path: dir, Err: err}
	} else {
		_, err = os.Lstat(dir) // the one that had the lock before may have removed it
	}
	if err != nil {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	return sync.OnceFunc(func() { _ = syscall.Close(fd) }), nil // a second close would be of another file's descriptor
}
