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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/term"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// recovery is the command that takes up what a lost App Cluster had ordered.
type recovery struct {
	*plugin
	from, format string
	yes, dryRun  bool
	timeout      time.Duration
}

func recoverCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover NAME [--from UID] [--yes]",
		Short: "Take up what a lost App Cluster had ordered",
		Long: `Take up what a lost App Cluster had ordered with the tenant that is this cluster's now.

This cluster was set up in the place of one that is gone for good, with the same
credential and the same objects. Those have new UIDs, so that what stands for the old
ones in the Control Plane Cluster is left alone until you agree. The command lists what
would be taken up, and what changes by that: objects here decide, as they always do.
What has no object of its namespace and name here stays as it is, and is listed too.

First the platform has to say that the old cluster is gone: kubectl bind status tells
what it clears. For GitOps, the consent is an annotation of the APIServiceBinding:
` + v1alpha1.RecoverAnnotation + `, with the UID of namespace kube-system of the
cluster that is lost, as -o json lists it.`,
		Example: `  kubectl bind recover postgresqlinstances.anynines.com --dry-run
  kubectl bind recover postgresqlinstances.anynines.com --yes`,
		ValidArgsFunction: p.completeBinding,
		Args:              oneBinding,
	}
	r := &recovery{plugin: p}
	flags := cmd.Flags()
	flags.StringVar(&r.from, "from", "", "UID of namespace kube-system of the lost cluster, where there are several")
	flags.BoolVar(&r.yes, "yes", false, "Take up what is listed, without a question")
	flags.BoolVar(&r.dryRun, "dry-run", false, "Only list")
	flags.StringVarP(&r.format, "output", "o", "", "How to print: json, which only lists unless --yes is given. A table if not given.")
	flags.DurationVar(&r.timeout, "timeout", time.Minute, "How long to wait for everything together; 0 is for ever")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) }
	return cmd
}

func (r *recovery) run(ctx context.Context, name string) error {
	switch {
	case r.format != "" && r.format != "json":
		return usageError{fmt.Sprintf("--output=%s: only json is known", r.format)}
	case r.yes && r.dryRun:
		return usageError{"--yes does not go with --dry-run"}
	}
	ctx, cancel := withTimeout(ctx, r.timeout)
	defer cancel()
	config, err := r.config()
	if err != nil {
		return err
	}
	found, err := bind.Leftovers(ctx, config, name)
	if err != nil {
		return err
	}
	lost, err := r.lost(found)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(l bind.Leftover) bool { return l.Cluster != lost })
	if err := r.print(found, lost); err != nil || lost == "" {
		return err
	}
	if agreed, err := r.agreed(ctx); err != nil || !agreed {
		return err
	}
	if err := bind.Recover(ctx, config, name, lost); err != nil {
		return err
	}
	r.sayf("The konnector takes up what App Cluster %s had ordered: see kubectl bind doctor", lost)
	return nil
}

// lost is the one App Cluster that is meant; empty if nothing is left of any.
func (r *recovery) lost(found []bind.Leftover) (types.UID, error) {
	var all []string
	for _, l := range found {
		if uid := string(l.Cluster); !slices.Contains(all, uid) {
			all = append(all, uid)
		}
	}
	slices.Sort(all)
	switch {
	case r.from != "" && !slices.Contains(all, r.from):
		return "", usageError{fmt.Sprintf("--from=%s: of that cluster nothing is left", r.from)}
	case r.from != "":
		return types.UID(r.from), nil
	case len(all) > 1:
		return "", usageError{fmt.Sprintf("name one of the lost App Clusters with --from: %s", term.Text(strings.Join(all, ", ")))}
	case len(all) == 0:
		return "", nil
	}
	return types.UID(all[0]), nil
}

// print shows what is left, and what becomes of it below.
func (r *recovery) print(found []bind.Leftover, lost types.UID) error {
	if r.format == "json" {
		encoder := json.NewEncoder(r.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(append([]bind.Leftover{}, found...))
	}
	if lost == "" {
		r.say("Nothing is left of another App Cluster")
		return nil
	}
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Namespace", Type: "string"}, {Name: "Name", Type: "string"}, {Name: "Taken up", Type: "boolean"}, {Name: "Changes", Type: "string"},
	}}
	claimed := 0
	for _, l := range found {
		changes := strings.Join(l.Differences, "; ")
		if l.Claimed {
			claimed++
		} else {
			changes = "stays: it has no object here"
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{term.Text(l.Namespace), term.Text(l.Name), l.Claimed, term.Text(changes)}})
	}
	err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, r.Out)
	r.sayf("Of App Cluster %s: %d of %d objects have one of their namespace and name here", lost, claimed, len(found))
	return err
}

// agreed asks the person, unless the flags say it.
func (r *recovery) agreed(ctx context.Context) (bool, error) {
	if r.yes || r.dryRun || r.format != "" {
		return r.yes, nil
	}
	_, _ = fmt.Fprint(r.talk, "Is that cluster gone for good, and shall the objects here take these up? [No,Yes] ")
	line, err := r.readLine(ctx)
	said := strings.ToLower(strings.TrimSpace(line))
	if said == "y" || said == "yes" {
		return true, nil
	}
	r.say("Nothing was changed")
	return false, ignoreEOF(err)
}
