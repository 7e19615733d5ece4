// SPDX-License-Identifier: Apache-2.0

// kubectl-bind makes APIs of a Control Plane Cluster usable in an App Cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends at once
	s := system{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		getenv:    os.Getenv,
		terminal:  term.IsTerminal(int(os.Stdout.Fd())),
		now:       time.Now,
		start:     startProgram,
	}
	code := run(ctx, s, arguments(os.Args))
	stop()
	os.Exit(code)
}
