// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/internal/term"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A system is the machine around a command.
type system struct {
	genericiooptions.IOStreams
	getenv   func(string) string
	terminal bool // what stdout shows is for eyes
	now      func() time.Time
	start    func(program string, args ...string) error // starts a browser, say
}

// A plugin is one run of the program.
type plugin struct {
	system
	flags   *genericclioptions.ConfigFlags
	answers *bufio.Reader // the one reader of stdin, so that no question eats another's answer
	talk    io.Writer     // stderr, safe to repeat strangers on
	changed []string      // in the App Cluster, before anything is bound
	ca      string        // file with the certificate authority of the backend; empty for the system's
}

// config leads to the App Cluster that the flags and the kubeconfig name.
func (p *plugin) config() (*rest.Config, error) {
	if n := *p.flags.Namespace; n != "" && n != v1alpha1.Namespace {
		return nil, usageError{fmt.Sprintf("bindings live in namespace %s: leave --namespace out", v1alpha1.Namespace)}
	}
	return p.client()
}

// errNoCluster is what client-go says in the words of another time.
var errNoCluster = errors.New("no cluster is named: the kubeconfig is missing, is empty, or has no current context")

// client leads to the cluster that the flags and the kubeconfig name, whichever it is.
func (p *plugin) client() (*rest.Config, error) {
	raw, err := p.flags.ToRawKubeConfigLoader().RawConfig()
	if err == nil && len(raw.Clusters) == 0 && *p.flags.APIServer == "" && p.getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, errNoCluster // and not localhost:8080, which may be anything
	}
	config, err := p.flags.ToRESTConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errNoCluster
	}
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.QPS = -1
	config.WarningHandler = rest.NewWarningWriter(p.talk, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// say tells the person one thing on a line of its own, with commands that can be pasted.
func (p *plugin) say(line string) { _, _ = fmt.Fprintln(p.talk, pasteable(p, term.Text(line))) }

// commands are those that hints name, as far as they lead to a cluster or a platform: those of
// the first group log in, and that of the second reads the kubeconfig alone.
var commands = regexp.MustCompile(`kubectl(?: bind (?:(repair|services|whoami|rotate|URL|https?://\S)|(?:apiservice|claims|konnector|unbind|recover|status|doctor|offer)\b)` +
	`| (config) | (?:-n \S+ )?(?:auth|get|describe|delete|edit|annotate) )`)

// pasteable has the commands in a text lead to where this command line led: the flags for that
// stand again right after "kubectl", or "kubectl bind". What the operators of a platform are to
// run leads elsewhere, and help nowhere; the words of a platform, after "says: ", are its own.
func pasteable(p *plugin, text string) string {
	var b strings.Builder
	done := 0
	ours, _, _ := strings.Cut(text, "says: ")
	for _, at := range commands.FindAllStringSubmatchIndex(ours, -1) {
		end := at[0] + len("kubectl")
		switch rest := text[end:]; {
		case strings.HasSuffix(text[:at[0]], "for whom "), strings.HasSuffix(text[:at[0]], "See '"):
			continue
		case strings.HasPrefix(rest, " bind "):
			end += len(" bind")
		}
		b.WriteString(text[done:end] + given(p, at[2] >= 0, at[4] >= 0))
		done = end
	}
	return b.String() + text[done:]
}

// given are the flags of this command line that say where it leads, for another one that logs
// in or not, or only reads the kubeconfig.
func given(p *plugin, login, kubeconfig bool) (flags string) {
	for _, f := range []struct {
		name   string
		goes   bool
		values []string
	}{
		{"kubeconfig", true, []string{*p.flags.KubeConfig}},
		{"context", !kubeconfig, []string{*p.flags.Context}},
		{"cluster", !kubeconfig, []string{*p.flags.ClusterName}},
		{"user", !kubeconfig, []string{*p.flags.AuthInfoName}},
		{"server", !kubeconfig, []string{*p.flags.APIServer}},
		{"as", !kubeconfig, []string{*p.flags.Impersonate}},
		{"as-uid", !kubeconfig, []string{*p.flags.ImpersonateUID}},
		{"as-group", !kubeconfig, *p.flags.ImpersonateGroup},
		{"as-user-extra", !kubeconfig, *p.flags.ImpersonateUserExtra},
		{"backend-certificate-authority", login, []string{p.ca}},
	} {
		for _, value := range f.values {
			if f.goes && value != "" {
				flags += " --" + f.name + "=" + shellWord(value)
			}
		}
	}
	return flags
}

// shellWord is a word as a shell takes it.
func shellWord(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

var plain = regexp.MustCompile(`^[\w@%+:,./-]+$`)

// changes is what a command that ends early has done to the App Cluster.
func (p *plugin) changes() string {
	if len(p.changed) == 0 {
		return "Nothing was changed in the App Cluster. "
	}
	return "In the App Cluster this command has only " + strings.Join(p.changed, ", and ") + ". "
}

func (p *plugin) sayf(format string, args ...any) { p.say(fmt.Sprintf(format, args...)) }

// noArgs, atMostOne and oneBinding are as cobra's own, with our exit code.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Sprintf("unknown argument %q", args[0])}
	}
	return nil
}

func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError{fmt.Sprintf("one argument at most, not %d", len(args))}
	}
	return nil
}

func oneBinding(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{"name one binding; kubectl bind status lists them"}
	}
	return nil
}

// withTimeout limits ctx to what the person is willing to wait.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// usageError is a command line that makes no sense.
type usageError struct{ message string }

// Error implements error.
func (e usageError) Error() string { return e.message }

func isUsage(err error) bool {
	_, ok := errors.AsType[usageError](err)
	return ok || strings.HasPrefix(err.Error(), "unknown command ")
}
