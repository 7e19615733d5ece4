// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/internal/term"
)

func doctorCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps bound APIs from working",
		Long: `Look for what keeps bound APIs from working: in this cluster, at the konnector, at each
kubeconfig and where it leads, at each binding and its objects. Asked about a Control Plane
Cluster, it looks at each template that is offered there. Nothing is changed.
The exit code is 3 if something is wrong.

With --takeover it says beforehand what would happen, object by object, if this konnector
took the place of Klutch's; asked about a Control Plane Cluster, what would become of each tenant
of Klutch's backend if this platform's adopted it. With -o json each object is named. The exit
code is 3 if something would stay as it is, or needs a hand.`,
		Example: "  kubectl bind doctor\n  kubectl bind doctor -o json\n  kubectl bind doctor --context control-plane\n  kubectl bind doctor --takeover",
		Args:    noArgs,
	}
	var format string
	var timeout time.Duration
	cmd.Flags().StringVarP(&format, "output", "o", "", "How to print: json. A table if not given.")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "How long to wait for everything together; 0 is for ever")
	takeover := cmd.Flags().Bool("takeover", false, "Say what would happen if this konnector took the place of Klutch's")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if format != "" && format != "json" {
			return usageError{fmt.Sprintf("--output=%s: only json is known", format)}
		}
		ctx, cancel := withTimeout(cmd.Context(), timeout)
		defer cancel()
		return diagnose(ctx, p, format, *takeover)
	}
	return cmd
}

func diagnose(ctx context.Context, p *plugin, format string, takeover bool) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	var found []bind.Finding
	if takeover {
		found = bind.Takeover(ctx, config, p.now(), deploy.Konnector("konnector"))
	} else {
		found = bind.Doctor(ctx, config, p.now())
	}
	for i := range found {
		found[i].Hint = pasteable(p, found[i].Hint)
	}
	if format == "json" {
		encoder := json.NewEncoder(p.Out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(found)
	} else {
		err = printFindings(p, found)
	}
	if err == nil && ctx.Err() != nil {
		return fmt.Errorf("not all was looked at: %w", context.Cause(ctx))
	}
	if err == nil && slices.ContainsFunc(found, func(f bind.Finding) bool { return !f.OK }) {
		return errQuiet
	}
	return err
}

// printFindings shows a table, and what to do below it.
func printFindings(p *plugin, found []bind.Finding) error {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Check", Type: "string"}, {Name: "About", Type: "string"}, {Name: "OK", Type: "boolean"}, {Name: "Message", Type: "string"},
	}}
	for _, f := range found {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{f.Check, term.Text(f.About), f.OK, cell(f.Message)}})
	}
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, p.Out); err != nil {
		return err
	}
	for _, f := range found {
		if f.Hint != "" {
			p.sayf("%s: %s", strings.TrimSpace(f.Check+" "+f.About), f.Hint)
		}
	}
	return nil
}
