// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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

// soon is how long a cluster has to answer what completes a command line.
const soon = 3 * time.Second

// A completion is what cobra asks for the candidates of an argument or flag.
type completion = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective)

// complete offers what read finds in the cluster. One that does not answer soon offers nothing.
func complete(p *plugin, read func(context.Context, *rest.Config) ([]string, error)) completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		config, err := p.config()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		config.Timeout = soon
		all, err := read(cmd.Context(), config)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		slices.Sort(all)
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// onlyFirst completes one argument, and no second one.
func onlyFirst(of completion) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return of(cmd, args, typed)
	}
}

// completeBinding offers the names of bindings for the one argument there is.
func (p *plugin) completeBinding(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return onlyFirst(complete(p, boundNames))(cmd, args, typed)
}

// completeURL leaves the cluster alone while a command is typed.
func completeURL(p *plugin) completion {
	return onlyFirst(func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if !strings.HasPrefix(typed, "h") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(p, bind.Platforms)(cmd, args, typed)
	})
}

func boundNames(ctx context.Context, config *rest.Config) ([]string, error) {
	all, err := bind.List(ctx, config)
	return bindingNames(all), err
}

// boundClaims are the claims of bindings that can be accepted, answered or not, as flags name them: what else
// a platform claims may have a name that a shell would run. Where a platform does
// not say soon what it claims now, the answered ones are returned.
func boundClaims(ctx context.Context, config *rest.Config) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	all, err := bind.Claims(ctx, config)
	for _, c := range all {
		if c.Standing != bind.StandingNever {
			names = append(names, c.Service.String()+"/"+c.String())
		}
	}
	if len(names) > 0 {
		err = nil
	}
	return names, err
}

func credentialSecrets(ctx context.Context, config *rest.Config) (names []string, err error) {
	all, err := bind.Credentials(ctx, config)
	for _, c := range all {
		names = append(names, c.Secret)
	}
	return names, err
}

// completeFlags gives the flags of all commands their candidates: kubectl's from the
// kubeconfig, ours from the cluster.
func completeFlags(p *plugin, cmd *cobra.Command) {
	fixed := func(words ...string) completion {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	for name, of := range map[string]completion{
		"context": completeConfig(p, func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Contexts)) }),
		"cluster": completeConfig(p, func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Clusters)) }),
		"user":    completeConfig(p, func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.AuthInfos)) }),
		"service": complete(p, boundNames), "accept-claim": complete(p, boundClaims), "reject-claim": complete(p, boundClaims),
		"backend": complete(p, bind.Platforms), "dry-run": fixed("none", "client", "server"), "lost-instances": fixed(lostPolicies...),
	} {
		if flag := cmd.Flag(name); flag != nil && flag.Value.Type() != "bool" {
			_ = cmd.RegisterFlagCompletionFunc(name, of) // a second time for the flags of the root
		}
	}
	if flag := cmd.Flag("output"); flag != nil {
		_, formats, _ := strings.Cut(flag.Usage, "How to print: ")
		formats, _, _ = strings.Cut(formats, ".")
		formats, _, _ = strings.Cut(formats, ", which")
		_ = cmd.RegisterFlagCompletionFunc("output", fixed(strings.Split(formats, ", ")...))
	}
	for _, sub := range cmd.Commands() {
		completeFlags(p, sub)
	}
}

func completeConfig(p *plugin, names func(clientcmdapi.Config) []string) completion {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		config, err := p.flags.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names(config), cobra.ShellCompDirectiveNoFileComp
	}
}
