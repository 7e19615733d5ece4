// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/klutch-go/sdk/internal/term"
)

// run executes a command line and returns its exit code. Data goes to stdout, talk
// to stderr.
func run(ctx context.Context, s system, args []string) int {
	p := &plugin{system: s, flags: genericclioptions.NewConfigFlags(true), answers: bufio.NewReader(s.In), talk: term.Writer(s.ErrOut)}
	if s.terminal {
		p.Out = term.Writer(s.Out)
	}
	root := rootCommand(p) //nolint:contextcheck // commands get ctx from ExecuteContext
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.ErrOut)
	cmd, err := root.ExecuteContextC(ctx)
	return p.end(ctx, cmd.CommandPath(), err)
}

func rootCommand(p *plugin) *cobra.Command {
	root := bindCommand(p)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl bind"}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err.Error()} })
	p.flags.AddFlags(root.PersistentFlags())
	root.SetUsageTemplate(usage)
	root.AddCommand(apiserviceCommand(p), claimsCommand(p), statusCommand(p), doctorCommand(p), rotateCommand(p), p.recoverCommand(), unbindCommand(p), konnectorCommand(p), offerCommand(p), versionCommand(p))
	return root
}

// usage is cobra's, with one line in place of all the flags that every kubectl command has.
const usage = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{with .LocalNonPersistentFlags}}{{if .HasAvailableFlags}}

Flags:
{{.FlagUsages | trimTrailingWhitespaces}}{{end}}{{end}}

The flags of kubectl, such as --context, --kubeconfig, --as and --request-timeout, work as well: kubectl options
`
