// SPDX-License-Identifier: Apache-2.0

package stack

import "syscall"

// attributes let a process die with its parent, and not of an interrupt at the
// terminal, which is for the parent to handle.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
