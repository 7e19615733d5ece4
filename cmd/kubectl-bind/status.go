// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func statusCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status [NAME]",
		Short:   "Show the APIs that are bound, and whether they work",
		Long:    "Show the APIs that are bound, and whether they work. The exit code is 3 if one of them is not ready,\nor has objects that are not in step. With a NAME it lists these.",
		Example: "  kubectl bind status\n  kubectl bind status postgresqlinstances.anynines.com -o yaml\n  kubectl bind status --watch",
		Args:    atMostOne,

		ValidArgsFunction: p.completeBinding,
	}
	out := newOutput(cmd)
	watch := cmd.Flags().BoolP("watch", "w", false, "Go on and show what changes, until interrupted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if *watch {
			return watchStatus(cmd.Context(), p, out, args)
		}
		return showStatus(cmd.Context(), p, out, args)
	}
	return cmd
}

func watchStatus(ctx context.Context, p *plugin, out *output, names []string) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = bind.Watch(ctx, config, func(b v1alpha1.APIServiceBinding) {
		if len(names) > 0 && !slices.Contains(names, b.Name) {
			return
		}
		if err := p.printBindings(out, []v1alpha1.APIServiceBinding{b}); err != nil {
			stop(err)
		}
		out.noHeaders = true
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func showStatus(ctx context.Context, p *plugin, out *output, names []string) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	all, err := p.bindings(ctx, config, names...)
	if err != nil {
		return err
	}
	if len(all) == 0 && out.isTable() {
		p.say("Nothing is bound in this cluster yet. Bind an API with: kubectl bind URL")
		return nil
	}
	if err := p.printBindings(out, all); err != nil {
		return err
	}
	if len(names) == 1 && out.isTable() {
		if err := p.showObjects(ctx, config, names[0]); err != nil {
			return err
		}
	}
	wrong := bind.KonnectorTrouble(ctx, config, p.now())
	if wrong != "" {
		p.sayf("The konnector: %s. What is shown may be old. Look at: kubectl -n %s get pods", wrong, v1alpha1.Namespace)
	}
	ended := p.endedCredentials(ctx, config, all)
	if wrong != "" || ended || slices.ContainsFunc(all, ails) {
		p.say("What to do about it: kubectl bind doctor")
		return errQuiet
	}
	return nil
}

// ails reports whether a binding is not ready, or keeps some of its objects out of step.
func ails(b v1alpha1.APIServiceBinding) bool { return !bind.IsReady(b) || bind.OutOfStep(b) > 0 }

// endedCredentials says which of the bindings have a token that has ended: whatever their
// conditions say, no konnector comes back with it. Who may not read the Secrets hears nothing.
func (p *plugin) endedCredentials(ctx context.Context, config *rest.Config, shown []v1alpha1.APIServiceBinding) (some bool) {
	credentials, err := bind.Credentials(ctx, config)
	if err != nil {
		return false
	}
	for _, c := range credentials {
		used := slices.ContainsFunc(shown, func(b v1alpha1.APIServiceBinding) bool { return slices.Contains(c.Services, b.Name) })
		if used && !c.Ends.IsZero() && c.Ends.Before(p.now()) {
			some = true
			p.sayf("The token in secret %s/%s of %s ended at %s, and no konnector gets another one with it. Run: kubectl bind %s",
				v1alpha1.Namespace, c.Secret, strings.Join(c.Services, ", "), c.Ends.Format(time.RFC3339), cmp.Or(c.Backend, "URL"))
		}
	}
	return some
}

// mostShown bounds how many objects are shown.
const mostShown = 10

// showObjects prints which objects of a binding are not in step, the oldest first.
func (p *plugin) showObjects(ctx context.Context, config *rest.Config, name string) error {
	objects, whole, err := bind.Objects(ctx, config, name, p.now())
	if err != nil {
		p.sayf("The objects cannot be looked at: %v", err)
		return nil // of the binding all was shown
	}
	if len(objects) == 0 {
		return nil
	}
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Not in step", Type: "string"}, {Name: "For", Type: "string"}, {Name: "Reason", Type: "string"}, {Name: "Message", Type: "string"},
	}}
	for _, o := range objects[:min(len(objects), mostShown)] {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{cell(o.Namespace + "/" + o.Name), age(p, o.Since), cell(o.Reason), cell(o.Message)}})
	}
	_, _ = fmt.Fprintln(p.Out)
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, p.Out); err != nil {
		return err
	}
	if more := len(objects) - mostShown; more > 0 {
		p.sayf("and %d more", more)
	}
	if !whole {
		p.say("The binding has too many objects to look at all of them.")
	}
	return nil
}

// bindings are all, or the one that is named.
func (p *plugin) bindings(ctx context.Context, config *rest.Config, names ...string) ([]v1alpha1.APIServiceBinding, error) {
	all, err := bind.List(ctx, config)
	for _, name := range names {
		all = slices.DeleteFunc(all, func(b v1alpha1.APIServiceBinding) bool { return b.Name != name })
		if err == nil && len(all) == 0 {
			err = fmt.Errorf("%s: %w", name, bind.ErrNotFound)
		}
	}
	return all, err
}
