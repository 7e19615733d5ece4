// SPDX-License-Identifier: Apache-2.0

package engine

import "syscall"

// attributes of a program: it dies with this process, so that it does not go on beside the program of
// the next process. Servers leave the group of this process as they start.
func (u user) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: u.credential(), Pdeathsig: syscall.SIGKILL}
}
