// SPDX-License-Identifier: Apache-2.0

//go:build unix

package engine

import (
	"os"
	osuser "os/user"
	"strconv"
	"syscall"
)

// A user is the one that servers run as: this process's own, or another one when that
// is root, as which PostgreSQL refuses to run.
type user struct {
	other    bool
	uid, gid int
}

func serverUser() user {
	if os.Geteuid() != 0 {
		return user{}
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := osuser.Lookup(name); err == nil {
			uid, err1 := strconv.Atoi(u.Uid)
			gid, err2 := strconv.Atoi(u.Gid)
			if err1 == nil && err2 == nil && uid > 0 {
				return user{true, uid, gid}
			}
		}
	}
	return user{true, 65534, 65534}
}

// own gives a file or folder to the user.
func (u user) own(path string) error {
	if !u.other {
		return nil
	}
	return os.Chown(path, u.uid, u.gid)
}

// owns tells whether a file is the user's, or this process's, which gives it away.
func (u user) owns(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(stat.Uid) == os.Geteuid() || u.other && int(stat.Uid) == u.uid)
}

func (u user) credential() *syscall.Credential {
	if !u.other {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)} //nolint:gosec // positive
}
