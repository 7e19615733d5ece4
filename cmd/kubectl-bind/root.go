// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	root.SetFlagErrorFunc(wrongFlag)
	p.flags.AddFlags(root.PersistentFlags())
	root.SetUsageFunc(printUsage)
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Bind APIs", []*cobra.Command{apiserviceCommand(p), claimsCommand(p), repairCommand(p), unbindCommand(p), recoverCommand(p)}},
		{"See what is bound, and what there is", []*cobra.Command{statusCommand(p), doctorCommand(p), servicesCommand(p), whoamiCommand(p)}},
		{"Run the App Cluster's side", []*cobra.Command{konnectorCommand(p), rotateCommand(p)}},
		{"Offer APIs", []*cobra.Command{offerCommand(p)}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.AddCommand(versionCommand(p))
	completeFlags(p, root)
	return root
}

// printUsage is cobra's way to print the usage of a command, with its flags by what they are about.
func printUsage(cmd *cobra.Command) error {
	usage, err := template.New("").Funcs(template.FuncMap{
		"rpad":   func(s string, width int) string { return fmt.Sprintf("%-*s", width, s) },
		"groups": flagGroups,
	}).Parse(usage)
	if err != nil {
		return err
	}
	return usage.Execute(cmd.OutOrStderr(), cmd)
}

// A flagGroup is some of the flags of a command, ready to be printed.
type flagGroup struct{ Title, Flags string }

// flagGroups are the flags of a command that not every kubectl command has.
func flagGroups(cmd *cobra.Command) (groups []flagGroup) {
	all := [][]string{ // the title, and the names; the first has the others
		{"Flags"},
		{"The login", "service", "device", "no-browser", "backend", "backend-certificate-authority"},
		{"Answers", "yes", "accept-claim", "reject-claim", "ask", "adopt"},
		{"The konnector", "image", "konnector-image", "skip-konnector"},
		{"Output", "output", "no-headers", "show-managed-fields", "template", "allow-missing-template-keys"},
	}
	sets := make([]pflag.FlagSet, len(all))
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		sets[max(0, slices.IndexFunc(all, func(g []string) bool { return slices.Contains(g[1:], f.Name) }))].AddFlag(f)
	})
	for i := range sets {
		if sets[i].HasAvailableFlags() {
			groups = append(groups, flagGroup{all[i][0], strings.TrimRight(sets[i].FlagUsages(), "\n")})
		}
	}
	return groups
}

// usage is cobra's, with one line in place of all the flags that every kubectl command has.
const usage = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{$all := .Commands}}{{range $group := .Groups}}

{{.Title}}:{{range $all}}{{if and .IsAvailableCommand (eq .GroupID $group.ID)}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableSubCommands}}

{{if .Groups}}Other commands{{else}}Commands{{end}}:{{range .Commands}}{{if and .IsAvailableCommand (eq .GroupID "")}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{range groups .}}

{{.Title}}:
{{.Flags}}{{end}}

The flags of kubectl, such as --context, --kubeconfig, --as and --request-timeout, work as well: kubectl options
`
