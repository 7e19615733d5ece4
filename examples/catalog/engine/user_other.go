// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package engine

import "syscall"

func (u user) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: u.credential()}
}
