// SPDX-License-Identifier: Apache-2.0

package engine

import "syscall"

// attributes of a program: it dies with this process, so that none works on beside
// the next one; servers leave it as they start.
func (u user) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: u.credential(), Pdeathsig: syscall.SIGKILL}
}
