// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package stack

import "syscall"

func attributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
