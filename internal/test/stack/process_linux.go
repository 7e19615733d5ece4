// SPDX-License-Identifier: Apache-2.0

package stack

import "syscall"

// attributes let a process get a signal when its parent dies, and not die of an interrupt at the
// terminal, which is for the parent to handle.
func attributes(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}
