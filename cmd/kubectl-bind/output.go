// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/term"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// output is what -o and its companions say. Empty and "wide" are tables.
type output struct {
	flags     *genericclioptions.PrintFlags
	noHeaders bool // of a table
}

func newOutput(cmd *cobra.Command) *output {
	o := &output{flags: genericclioptions.NewPrintFlags("")}
	o.flags.AddFlags(cmd)
	cmd.Flag("output").Usage = "How to print: wide, " + strings.Join(o.flags.AllowedFormats(), ", ") + ". A table if not given."
	return o
}

func (o *output) format() string { return *o.flags.OutputFormat }

func (o *output) isTable() bool { return o.format() == "" || o.format() == "wide" }

// orYAML is for what makes no table.
func (o *output) orYAML() *output {
	if o.isTable() {
		*o.flags.OutputFormat = "yaml"
	}
	return o
}

// printer fails on a format that does not exist.
func (o *output) printer() (printers.ResourcePrinter, error) {
	printer, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, usageError{err.Error()}
	}
	return printer, err
}

// check is printer for before anything is done.
func (o *output) check() error {
	if o.isTable() {
		return nil
	}
	_, err := o.printer()
	return err
}

// printBindings prints one as an object, several as documents or a list.
func (p *plugin) printBindings(o *output, all []v1alpha1.APIServiceBinding) error {
	if o.isTable() {
		return printTable(p, all, printers.PrintOptions{Wide: o.format() == "wide", NoHeaders: o.noHeaders})
	}
	objects := make([]runtime.Object, len(all))
	for i := range all {
		all[i].TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceBinding"}
		objects[i] = &all[i]
	}
	return p.printObjects(o, objects)
}

// printObjects prints as kubectl does: documents one by one as YAML and names, and
// a List where there is one place only.
func (p *plugin) printObjects(o *output, objects []runtime.Object) error {
	printer, err := o.printer()
	if err != nil {
		return err
	}
	items := make([]unstructured.Unstructured, len(objects))
	for i, obj := range objects {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return err
		}
		if t, _, _ := unstructured.NestedFieldNoCopy(m, "metadata", "creationTimestamp"); t == nil {
			unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
		}
		items[i].Object = m
	}
	if len(items) == 1 || o.format() == "yaml" || o.format() == "name" {
		for i := range items {
			if err := printer.PrintObj(&items[i], p.Out); err != nil {
				return err
			}
		}
		return nil
	}
	return printer.PrintObj(&unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}, Items: items}, p.Out)
}

// checkRows is check for rows that a command makes up, rather than objects of a cluster.
func (o *output) checkRows() error {
	if f := o.format(); !o.isTable() && f != "json" && f != "yaml" {
		return usageError{fmt.Sprintf("--output=%s: this prints wide, json and yaml", f)}
	}
	return nil
}

// printRows prints rows that are no objects of a cluster: as a table, in which a column with a + is for
// -o wide alone, or as a list in JSON or YAML.
func printRows[T any](p *plugin, o *output, columns []string, rows []T, cells func(T) []any) error {
	if !o.isTable() {
		return printValue(p, o, rows)
	}
	table := &metav1.Table{}
	for _, name := range columns {
		column := metav1.TableColumnDefinition{Type: "string"}
		if column.Name = strings.TrimSuffix(name, "+"); column.Name != name {
			column.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, column)
	}
	for _, row := range rows {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells(row)})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: o.format() == "wide", NoHeaders: o.noHeaders}).PrintObj(table, p.Out)
}

// printValue prints a value that is no object of a cluster.
func printValue(p *plugin, o *output, value any) (err error) {
	data, err := json.MarshalIndent(value, "", "  ")
	data = append(data, '\n')
	if err == nil && o.format() == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err == nil {
		_, err = p.Out.Write(data)
	}
	return err
}

func printTable(p *plugin, all []v1alpha1.APIServiceBinding, opts printers.PrintOptions) error {
	slices.SortFunc(all, func(a, b v1alpha1.APIServiceBinding) int { return cmp.Compare(a.Name, b.Name) })
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string"},
		{Name: "Provider", Type: "string"},
		{Name: "Ready", Type: "string"},
		{Name: "Not in step", Type: "integer"},
		{Name: "Age", Type: "string"},
		{Name: "Message", Type: "string"},
		{Name: "Secret", Type: "string", Priority: 1},
		{Name: "Claims", Type: "string", Priority: 1},
		{Name: "Conditions", Type: "string", Priority: 1},
	}}
	for _, b := range all {
		ready, message := readiness(b)
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			cell(b.Name), cell(b.Status.ProviderPrettyName), ready, bind.OutOfStep(b), age(p, b.CreationTimestamp.Time), clip(cell(message), opts.Wide),
			cell(b.Spec.KubeconfigSecretRef.Namespace + "/" + b.Spec.KubeconfigSecretRef.Name), claimCell(b), conditionCell(b),
		}})
	}
	return printers.NewTablePrinter(opts).PrintObj(table, p.Out)
}

func cell(s string) string { return cmp.Or(term.Text(s), "<none>") }

// clip leaves a message room on a screen, and of what has none the whole sentences: half a command
// is none. With -o wide and yaml all of it is there.
func clip(s string, wide bool) string {
	const room = 100
	r := []rune(s)
	if wide || len(r) <= room {
		return s
	}
	s = string(r[:room])
	if end := strings.LastIndex(s, ". "); end > 0 {
		return s[:end+1] + " …"
	}
	return s + "…"
}

func age(p *plugin, t time.Time) string {
	if t.IsZero() {
		return "<none>"
	}
	return duration.HumanDuration(p.now().Sub(t))
}

// readiness is the condition Ready in two words.
func readiness(b v1alpha1.APIServiceBinding) (ready, message string) {
	c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return "Unknown", "no konnector has taken it up yet"
	}
	if c.Status == metav1.ConditionTrue && v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionConnected) == nil {
		return "Unknown", "a konnector has read the kubeconfig Secret and is not connected yet"
	}
	said := c
	if asked := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionClaimsInSync); c.Message == "" && asked != nil && asked.Message != "" {
		said = asked // claims that are not answered yet
	}
	message = said.Reason
	if said.Message != "" && said.Message != said.Reason {
		message = strings.TrimPrefix(message+": "+said.Message, ": ")
	}
	return string(c.Status), message
}

func claimCell(b v1alpha1.APIServiceBinding) string {
	var s []string
	for _, c := range b.Spec.PermissionClaims {
		s = append(s, fmt.Sprintf("%s=%s", c.GroupResource, c.State))
	}
	return cell(strings.Join(s, ","))
}

func conditionCell(b v1alpha1.APIServiceBinding) string {
	var s []string
	for _, c := range b.Status.Conditions {
		if c.Type != v1alpha1.ConditionReady {
			s = append(s, fmt.Sprintf("%s=%s", c.Type, c.Status))
		}
	}
	return cell(strings.Join(s, ","))
}
