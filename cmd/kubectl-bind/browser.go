// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

var errNoBrowser = errors.New("no browser here")

// open starts the browser of $BROWSER, or the desktop's where there is one and the
// person sits at a terminal.
func openBrowser(p *plugin, url string) error {
	if browsers := p.getenv("BROWSER"); browsers != "" {
		return openOneOf(p, strings.Split(browsers, ":"), url)
	}
	switch {
	case !p.terminal || p.getenv("SSH_CONNECTION") != "":
		return errNoBrowser
	case runtime.GOOS == "darwin":
		return p.start("open", url)
	case p.getenv("DISPLAY") != "" || p.getenv("WAYLAND_DISPLAY") != "":
		return p.start("xdg-open", url)
	}
	return errNoBrowser
}

// openOneOf tries each command of $BROWSER, in which %s stands for the URL.
func openOneOf(p *plugin, browsers []string, url string) error {
	err := errNoBrowser
	for _, b := range browsers {
		words := strings.Fields(b)
		if len(words) == 0 {
			continue
		}
		if !strings.Contains(b, "%s") {
			words = append(words, "%s")
		}
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "%s", url)
		}
		if err = p.start(words[0], words[1:]...); err == nil {
			return nil
		}
	}
	return err
}

// startProgram does not wait: a browser may run for days.
func startProgram(program string, args ...string) error {
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives the command
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}
