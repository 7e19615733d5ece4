// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

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
	timeout := cmd.Flags().Duration("timeout", time.Minute, "How long to wait for everything together, without --watch; 0 is for ever")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if *watch {
			return watchStatus(cmd.Context(), p, out, args)
		}
		ctx, cancel := withTimeout(cmd.Context(), *timeout)
		defer cancel()
		return showStatus(ctx, p, out, args)
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
	w := &statusWatch{plugin: p, config: config, out: out, names: names, silence: bind.KonnectorSilence(ctx, config, p.now())}
	go func() {
		stop(wait.PollUntilContextCancel(ctx, listenEvery, false, func(ctx context.Context) (bool, error) { return false, w.listen(ctx) }))
	}()
	err = bind.Watch(ctx, config, func(b v1alpha1.APIServiceBinding) {
		if len(names) > 0 && !slices.Contains(names, b.Name) {
			return
		}
		if err := w.show(b); err != nil {
			stop(err)
		}
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// listenEvery is how often the konnector is looked at while bindings are watched: of one that has
// died no event comes.
const listenEvery = 15 * time.Second

// A statusWatch prints bindings as they change, and as their konnector falls silent or is back.
type statusWatch struct {
	*plugin
	config *rest.Config
	names  []string

	mu      sync.Mutex // guards what follows
	out     *output
	silence string // of the konnector, when it was looked at last
}

// show prints bindings, and READY Unknown where their konnector is silent.
func (w *statusWatch) show(all ...v1alpha1.APIServiceBinding) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	doubt(all, w.silence, w.now())
	err := w.printBindings(w.out, all)
	w.out.noHeaders = true
	return err
}

// listen looks at the konnector, and prints the bindings again if it has fallen silent or is back.
func (w *statusWatch) listen(ctx context.Context) error {
	silence := bind.KonnectorSilence(ctx, w.config, w.now())
	w.mu.Lock()
	changed := (silence == "") != (w.silence == "")
	w.silence = silence
	w.mu.Unlock()
	if !changed {
		return nil
	}
	all, err := w.bindings(ctx, w.config, w.names...)
	if err != nil || len(all) == 0 {
		return nil //nolint:nilerr // the watch tells what becomes of them
	}
	return w.show(all...)
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
	wrong := bind.KonnectorSilence(ctx, config, p.now())
	doubt(all, wrong, p.now())
	if wrong == "" {
		sayClock(p, bind.KonnectorClock(ctx, config, p.now()))
		wrong = bind.KonnectorUnheard(ctx, config, all)
	}
	if err := p.printBindings(out, all); err != nil {
		return err
	}
	if len(names) == 1 && out.isTable() {
		if err := p.showObjects(ctx, config, all[0], out.format() == "wide"); err != nil {
			return err
		}
	}
	if wrong != "" {
		p.sayf("This may be old. Look at: kubectl -n %s get pods", v1alpha1.Namespace)
		p.sayf("The konnector: %s", wrong)
	}
	ended := p.endedCredentials(ctx, config, all)
	if ctx.Err() != nil {
		return fmt.Errorf("not all was looked at: %w", context.Cause(ctx)) // of which no errors are shown
	}
	if wrong != "" || ended || slices.ContainsFunc(all, ails) {
		p.say("What to do about it: kubectl bind doctor")
		return errQuiet
	}
	return nil
}

// sayClock says that the clock here is ahead of the konnector's, or behind it.
func sayClock(p *plugin, ahead time.Duration) {
	how := "ahead of"
	if ahead < 0 {
		how = "behind"
	}
	if ahead != 0 {
		p.sayf("The clock here is %s %s the konnector's, so that ages and words about tokens may be wrong. Set the one that is wrong.", ahead.Abs(), how)
	}
}

// reasonSilent is why nothing is known of a binding whose konnector is silent.
const reasonSilent = "KonnectorSilent"

// doubt has no binding be ready, or not, where the konnector that would say so is silent.
func doubt(all []v1alpha1.APIServiceBinding, wrong string, now time.Time) {
	if wrong == "" {
		return
	}
	for i := range all {
		if ready := v1alpha1.FindCondition(all[i].Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			ready.Message = fmt.Sprintf("The konnector: %s. What it said last is %s.", wrong, ready.Status)
			ready.Status, ready.Severity, ready.Reason, ready.LastTransitionTime = metav1.ConditionUnknown, v1alpha1.SeverityWarning, reasonSilent, metav1.NewTime(now)
		}
	}
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

// mostShown bounds how many objects are shown, but with -o wide.
const mostShown = 10

// showObjects prints which objects of a binding are not in step, the oldest first.
func (p *plugin) showObjects(ctx context.Context, config *rest.Config, b v1alpha1.APIServiceBinding, all bool) error {
	objects, whole, err := bind.Objects(ctx, config, b.Name, p.now())
	if err != nil {
		p.sayf("The objects cannot be looked at: %v", err)
		return nil // of the binding all was shown
	}
	if counted := bind.OutOfStep(b); whole && counted > len(objects) {
		silent := "1 of them does not say why itself"
		if n := counted - len(objects); n > 1 {
			silent = fmt.Sprintf("%d of them do not say why themselves", n)
		}
		p.sayf("The konnector counts %d, and %s. Look at: kubectl -n %s describe apiservicebinding %s", counted, silent, v1alpha1.Namespace, b.Name)
	}
	if len(objects) == 0 {
		return nil
	}
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Not in step", Type: "string"}, {Name: "For", Type: "string"}, {Name: "Reason", Type: "string"}, {Name: "Message", Type: "string"},
	}}
	more := len(objects) - mostShown
	if all {
		more = 0
	}
	for _, o := range objects[:len(objects)-max(more, 0)] {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{cell(cache.NewObjectName(o.Namespace, o.Name).String()), age(p, o.Since), cell(o.Reason), cell(o.Message)}})
	}
	_, _ = fmt.Fprintln(p.Out)
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, p.Out); err != nil {
		return err
	}
	if more > 0 {
		p.sayf("and %d more; -o wide shows all", more)
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
		bound := bindingNames(all)
		all = slices.DeleteFunc(all, func(b v1alpha1.APIServiceBinding) bool { return b.Name != name })
		if err == nil && len(all) == 0 {
			pointTo(ctx, p, config, name)
			err = fmt.Errorf("%s: %w", name, bind.ErrNotFound)
			for _, like := range bound {
				if len(name) > 2 && strings.HasPrefix(like, strings.ToLower(name)) { // the kind, or what kubectl takes for it
					p.sayf("Did you mean: %s?", like)
				}
			}
		}
	}
	return all, err
}

// pointTo says of which bindings there are objects of a name that no binding has.
func pointTo(ctx context.Context, p *plugin, config *rest.Config, name string) {
	found, err := bind.Named(ctx, config, name)
	if err != nil {
		return // it is enough that there is no such binding
	}
	for _, o := range found {
		in := ""
		if o.Namespace != "" {
			in = "-n " + o.Namespace + " "
		}
		p.sayf("%s is an object of %s. Look at: kubectl bind status %s, and at: kubectl %sdescribe %s %s", cache.NewObjectName(o.Namespace, o.Name), o.Binding, o.Binding, in, o.Binding, o.Name)
	}
}
