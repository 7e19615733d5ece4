// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/klutch-go/sdk/bind"
)

// completer is the name by which kubectl calls what completes the command lines of
// this plugin.
const completer = "kubectl_complete-bind"

// arguments returns what follows the name of the program: called as completer, a
// command line to complete.
func arguments(argv []string) []string {
	if strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == completer {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

// completeBinding offers the names of bindings for the one argument there is. A
// cluster that does not answer soon offers none.
func (p *plugin) completeBinding(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	config, err := p.config()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	config.Timeout = 3 * time.Second
	all, err := bind.List(cmd.Context(), config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return bindingNames(all), cobra.ShellCompDirectiveNoFileComp
}
