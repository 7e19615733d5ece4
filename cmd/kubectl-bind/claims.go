// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/term"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// claimsCommand lists claims, and answers them where flags say so.
func claimsCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claims [NAME]",
		Short: "List the permission claims of bound APIs, or answer them again",
		Long: `List the permission claims of all bound APIs, or of one, with the answers that they have.
Nothing is changed. The exit code is 5 if a claim has no answer.

With a NAME, --accept-claim, --reject-claim and --yes answer claims again, and --ask asks about
those that have no answer yet. The copies that were made under a claim go with its rejection.`,
		Example: `  kubectl bind claims
  kubectl bind claims postgresqlinstances.anynines.com --ask
  kubectl bind claims postgresqlinstances.anynines.com --reject-claim configmaps`,
		ValidArgsFunction: p.completeBinding,
		Args:              atMostOne,
	}
	i := newInstallation(p, cmd)
	i.skipKonnector = true
	ask := cmd.Flags().Bool("ask", false, "Ask about the claims that have no answer yet")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := withTimeout(cmd.Context(), i.timeout)
		defer cancel()
		answers := *ask || i.claims.yes || len(i.claims.accept)+len(i.claims.reject) > 0
		switch {
		case answers && len(args) == 0:
			return usageError{"name the binding of which claims are to be answered; kubectl bind claims lists them"}
		case answers:
			return answerAgain(ctx, i, args[0])
		}
		return listClaims(ctx, i, args)
	}
	return cmd
}

// A claimRow is a claim as the command lists it.
type claimRow struct {
	Service  string              `json:"service"`
	Claim    string              `json:"claim"`
	May      string              `json:"providerMay"`
	Objects  []string            `json:"objects,omitempty"` // the names and labels that narrow the claim; empty means all objects
	Required bool                `json:"required"`
	Answer   v1alpha1.ClaimState `json:"answer,omitempty"`
	Why      string              `json:"why,omitempty"` // why the claim is not an ordinary one
}

// listClaims shows what could be read also where a platform could not be asked.
func listClaims(ctx context.Context, i *installation, names []string) error {
	if err := i.output.checkRows(); err != nil {
		return err
	}
	config, err := i.plugin.config()
	if err != nil {
		return err
	}
	claims, unknown := bind.Claims(ctx, config, names...)
	if claims == nil && unknown != nil {
		return unknown
	}
	rows, missing := []claimRow{}, &bind.ConsentError{}
	for _, c := range claims {
		rows = append(rows, claimRow{c.Service.String(), c.String(), claimVerb(c), claimLimits(c.Selector), c.Required, c.State, c.Why})
		if c.State == "" {
			missing.Unanswered = append(missing.Unanswered, c)
		}
	}
	if len(rows) == 0 && i.output.isTable() {
		i.say("No permission is claimed")
		return nil
	}
	err = printRows(i.plugin, i.output, []string{"Service", "Claim", "Provider may", "Required", "Answer", "Objects+"}, rows, func(r claimRow) []any {
		return []any{cell(r.Service), cell(r.Claim), r.May, r.Required, cmp.Or(string(r.Answer), "none"), cmp.Or(term.Text(strings.Join(r.Objects, "; ")), "all")}
	})
	if err == nil {
		err = unknown
	}
	if err == nil && len(missing.Unanswered) > 0 {
		err = missing
	}
	return err
}

func answerAgain(ctx context.Context, i *installation, name string) error {
	if err := i.check(); err != nil {
		return err
	}
	if err := i.prepare(ctx); err != nil {
		return err
	}
	i.claims.one = true
	all, err := i.bindings(ctx, i.config, name)
	if err == nil {
		err = i.claims.inCluster(ctx, i.config)
	}
	if err != nil {
		return err
	}
	ref := all[0].Spec.KubeconfigSecretRef
	kubeconfig, err := readSecret(ctx, i.config, ref.Namespace, ref.Name)
	if err != nil {
		return err
	}
	return i.install(ctx, kubeconfig, []v1alpha1.APIServiceExportRequest{requestFor(name)})
}

// claimAnswers are the answers of the command line. Each element is RESOURCE[.GROUP], or
// that after "SERVICE/".
type claimAnswers struct {
	yes            bool
	accept, reject []string
	one            bool // they are of one service that was named, and of no other
}

// of returns the answer to a claim, empty for none. A refusal wins, and an
// earlier answer counts more than --yes, which stands for ordinary claims only.
func (a claimAnswers) of(c bind.Claim) v1alpha1.ClaimState {
	named := func(flag string) bool { return names(flag, c) }
	switch {
	case slices.ContainsFunc(a.reject, named):
		return v1alpha1.ClaimRejected
	case slices.ContainsFunc(a.accept, named) || a.yes && c.State == "" && c.Standing == bind.StandingOrdinary:
		return v1alpha1.ClaimAccepted
	}
	return c.State
}

// names tells whether the argument of a flag means a claim.
func names(flag string, c bind.Claim) bool {
	return flag == c.String() || flag == c.Service.String()+"/"+c.String()
}

// sensible fails on answers that can be seen to be wrong before a person logs in.
func (a claimAnswers) sensible() error {
	for _, flag := range slices.Concat(a.accept, a.reject) {
		if !claimPattern.MatchString(flag) {
			return usageError{fmt.Sprintf("%q is no claim: claims are named [SERVICE/]RESOURCE[.GROUP], such as secrets", flag)}
		}
		_, everywhere, _ := strings.Cut(flag, "/")
		if slices.Contains(a.accept, flag) && (slices.Contains(a.reject, flag) || slices.Contains(a.reject, everywhere)) {
			return usageError{fmt.Sprintf("the claim %s is both accepted and rejected", flag)}
		}
	}
	return nil
}

// ofServices fails on answers for a service that the command line does not bind.
func (a claimAnswers) ofServices(services []string) error {
	for _, flag := range slices.Concat(a.accept, a.reject) {
		service, _, ok := strings.Cut(flag, "/")
		if ok && len(services) > 0 && !slices.Contains(services, service) {
			return usageError{fmt.Sprintf("the claim %s is of no service to be bound: --service does not name %s", flag, service)}
		}
	}
	return nil
}

// inCluster fails on answers that name a resource of Kubernetes' core which the App Cluster does
// not have: a slip would be told after the login only. Of other resources the App Cluster may not know yet.
func (a claimAnswers) inCluster(ctx context.Context, config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	core, err := client.ServerResourcesForGroupVersionWithContext(ctx, "v1")
	if err != nil {
		return nil //nolint:nilerr // who cannot tell does not stand in the way
	}
	for flag, names := range map[string][]string{"--accept-claim": a.accept, "--reject-claim": a.reject} {
		for _, name := range names {
			resource := name[strings.LastIndex(name, "/")+1:]
			if strings.Contains(resource, ".") || slices.ContainsFunc(core.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }) {
				continue
			}
			like := ""
			for _, r := range core.APIResources {
				if r.SingularName == resource || slices.Contains(r.ShortNames, resource) {
					like = ". Did you mean: " + r.Name + "?"
				}
			}
			return usageError{fmt.Sprintf("%s %s: this cluster has no such resource%s", flag, name, like)}
		}
	}
	return nil
}

var claimPattern = regexp.MustCompile(`^([a-z0-9.-]+/)?[a-z0-9.-]+$`)

// check fails on a refusal that means no claim: with a slip in it --yes would accept
// the claim that it was to refuse. It fails on an acceptance that no provider may get, and, where
// all are of one service, on one that means no claim of it.
func (a claimAnswers) check(claims []bind.Claim) error {
	if idle := idle(a.reject, claims); len(idle) > 0 {
		return usageError{fmt.Sprintf("--reject-claim %s: no service claims that", idle[0])}
	}
	if idle := idle(a.accept, claims); len(idle) > 0 && a.one {
		return usageError{fmt.Sprintf("--accept-claim %s: the service does not claim that", idle[0])}
	}
	for _, c := range claims {
		named := slices.ContainsFunc(a.accept, func(flag string) bool { return names(flag, c) })
		if named && c.Standing == bind.StandingNever {
			return usageError{fmt.Sprintf("--accept-claim %s/%s: no provider gets that, since %s", c.Service, c.String(), c.Why)}
		}
	}
	return nil
}

// idle are the flags that mean no claim.
func idle(flags []string, claims []bind.Claim) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		return slices.ContainsFunc(claims, func(c bind.Claim) bool { return names(flag, c) })
	})
}

// answer asks the person where neither the flags nor an earlier answer say anything, and
// then tells the person which claims are accepted.
func (p *plugin) answer(flags claimAnswers) func(context.Context, []bind.Claim) error {
	return func(ctx context.Context, claims []bind.Claim) (err error) {
		if err := flags.check(claims); err != nil {
			return err
		}
		for _, flag := range idle(flags.accept, claims) { // perhaps of a service that was not chosen
			p.sayf("--accept-claim %s: no service claims that", flag)
		}
		for n, c := range claims {
			state := flags.of(c)
			if state == "" {
				state, err = p.ask(ctx, c)
			}
			if err != nil {
				return err
			}
			claims[n].State = state
		}
		for _, c := range claims {
			if c.State == v1alpha1.ClaimAccepted {
				_, _ = fmt.Fprintln(p.talk, acceptance(c)) // all of it, however long
			}
		}
		return nil
	}
}

// acceptance says on one line what a person, or a flag, agreed to.
func acceptance(c bind.Claim) string {
	objects := ", " + allObjects(c)
	if lines := claimLimits(c.Selector); len(lines) > 0 {
		objects = ": " + strings.Join(lines, "; ") + "."
	}
	sentence := fmt.Sprintf("Accepted: the provider of %s may %s %s%s", term.Text(c.Service.String()), claimVerb(c), term.Text(c.String()), objects)
	return strings.Join(append([]string{sentence}, claimMetadata(c)...), " ")
}

// ask takes answers that are piped, too; when there are no more, the claim stays
// unanswered.
func (p *plugin) ask(ctx context.Context, c bind.Claim) (v1alpha1.ClaimState, error) {
	_, _ = io.WriteString(p.talk, describeClaim(c))
	question, yes := "Do you accept this permission? [No,Yes] ", []string{"y", "yes"}
	if c.Standing != bind.StandingOrdinary { // not a line that was piped into all questions
		question, yes = fmt.Sprintf("To accept this permission, type %s. [No,%[1]s] ", term.Text(c.String())), []string{strings.ToLower(c.String())}
	}
	for {
		_, _ = io.WriteString(p.talk, question)
		line, err := p.readLine(ctx)
		switch said := strings.ToLower(strings.TrimSpace(line)); {
		case slices.Contains(yes, said):
			return v1alpha1.ClaimAccepted, nil
		case said == "n" || said == "no":
			return v1alpha1.ClaimRejected, nil
		}
		if err != nil {
			_, _ = io.WriteString(p.talk, "\n")
			return "", ignoreEOF(err)
		}
	}
}

// askAdoption asks how many objects of a service its provider may have become claims. Without a
// number it is none: adoption can be agreed to at any time.
func (i *installation) askAdoption(ctx context.Context, service v1alpha1.GroupResource) (int32, error) {
	name := term.Text(service.String())
	if i.claims.yes {
		i.sayf("The provider of %s offers that its own objects become claims in this cluster. None do; --adopt N agrees to N of them.", name)
		return 0, nil
	}
	_, _ = fmt.Fprintf(i.talk, "\nThe provider of %s offers that objects of this kind which it makes itself become claims in your cluster,\n"+
		"in the namespaces that have some already. The deletion of such a claim leaves the object there.\n"+
		"This is optional; kubectl bind claims %[1]s --adopt N changes it at any time.\n", name)
	for range 3 { // a number is no line that was piped into all questions
		_, _ = fmt.Fprintf(i.talk, "How many at most? [No,1-%d] ", mostAdopted)
		line, err := i.readLine(ctx)
		said := strings.ToLower(strings.TrimSpace(line))
		if n, wrong := strconv.ParseInt(said, 10, 32); wrong == nil && n >= 0 && n <= mostAdopted {
			return int32(n), nil
		}
		if err != nil {
			_, _ = io.WriteString(i.talk, "\n")
			return 0, ignoreEOF(err)
		}
		if said == "" || said == "n" || said == "no" {
			return 0, nil
		}
	}
	return 0, nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// readLine gives up with ctx. The input that is being read then is lost with the process.
func (p *plugin) readLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, err := p.answers.ReadString('\n')
		done <- result{line, err}
	}()
	select {
	case r := <-done:
		return r.line, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// describeClaim says in words what the person is asked for. All that the provider
// may fill with text is shown as text.
func describeClaim(c bind.Claim) string {
	version := c.Version
	if c.Group != "" {
		version = c.Group + "/" + c.Version
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe provider of %s wants to %s %s objects (apiVersion: \"%s\") on your cluster%s\n",
		term.Text(c.Service.String()), claimVerb(c), term.Text(c.Resource), term.Text(version), claimObjects(c))
	if c.Why != "" {
		fmt.Fprintf(&b, "This is no ordinary permission: %s.\n", c.Why)
	}
	for _, s := range slices.Concat(claimMetadata(c), claimTerms(c.PermissionClaim)) {
		b.WriteString(s + "\n")
	}
	if c.Required {
		b.WriteString("Accepting this permission is required in order to proceed.\n")
	} else {
		b.WriteString("Accepting this permission is optional.\n")
	}
	return b.String()
}

// claimVerb: without an owner some konnectors take both directions.
func claimVerb(c bind.Claim) string {
	switch {
	case c.AutoDonate:
		return "create user owned"
	case c.AutoAdopt:
		return "have ownership of"
	case c.Selector.Owner == v1alpha1.OwnerProvider:
		return "write"
	case c.Selector.Owner == v1alpha1.OwnerConsumer:
		return "read"
	}
	return "read and write"
}

// claimObjects says which objects are meant; whatever is not narrowed is all.
func claimObjects(c bind.Claim) string {
	lines := claimLimits(c.Selector)
	if len(lines) == 0 {
		return ": " + allObjects(c)
	}
	return ", namely\n  - " + strings.Join(lines, "\n  - ")
}

// allObjects says where nothing narrows a claim.
func allObjects(c bind.Claim) string {
	if c.Wide {
		return "all of them, in all namespaces with objects of any service of this platform."
	}
	return "all of them, in all namespaces with objects of the service."
}

// claimLimits are what narrows a claim.
func claimLimits(s v1alpha1.ResourceSelector) (lines []string) {
	for _, r := range s.References {
		lines = append(lines, "those whose name stands in "+quoted(r.Path)+" of one of its objects"+namedBy(s.Owner, r.Path))
	}
	if !slices.Contains(s.Names, "*") {
		lines = append(lines, prefixed("name: ", s.Names)...)
	}
	if !slices.Contains(s.Namespaces, "*") {
		lines = append(lines, prefixed("namespace: ", s.Namespaces)...)
	}
	return append(lines, prefixed("labels: ", selectors(s.LabelSelectors))...)
}

// namedBy says where the provider may name any object of the App Cluster: it writes all
// but the spec.
func namedBy(owner v1alpha1.Owner, path string) string {
	if owner != v1alpha1.OwnerConsumer || strings.HasPrefix(strings.TrimLeft(path, "$."), "spec.") {
		return ""
	}
	return ", where the provider writes what it likes"
}

// selectors returns label maps in the syntax of kubectl, sorted. An object has to match one of them;
// an empty map matches all objects.
func selectors(maps []map[string]string) (all []string) {
	for _, m := range maps {
		if len(m) == 0 {
			return nil
		}
		all = append(all, labels.SelectorFromSet(m).String())
	}
	return all
}

// claimMetadata says what travels with the content.
func claimMetadata(c bind.Claim) (s []string) {
	keys, annotations := c.Metadata()
	if len(keys) > 0 {
		s = append(s, "Their labels "+strings.Join(prefixed("", keys), ", ")+" travel with them.")
	}
	if len(annotations) > 0 {
		s = append(s, "Their annotations "+strings.Join(prefixed("", annotations), ", ")+" travel with them.")
	}
	return s
}

// prefixed leaves none out: package bind refuses a claim that has more than a person reads.
func prefixed(label string, names []string) []string {
	lines := make([]string, len(names))
	for n, name := range names {
		lines[n] = label + quoted(name)
	}
	return lines
}

// quoted is the text of a stranger between quotes that it cannot end.
func quoted(s string) string { return `"` + strings.ReplaceAll(term.Text(s), `"`, `\"`) + `"` }

func claimTerms(c v1alpha1.PermissionClaim) []string {
	var s []string
	if c.Create != nil && c.Create.ReplaceExisting {
		s = append(s, "Conflicting objects will be replaced by the provider.")
	}
	if r := c.OnConflict.RecreateWhenConsumerSideDeleted; r != nil && *r && c.Selector.Owner != v1alpha1.OwnerConsumer {
		s = append(s, "Created objects will be recreated upon deletion.")
	}
	if u := c.Update; u != nil {
		s = append(s, fieldList("The following fields of the objects will still be able to be changed by the provider:", u.Fields)...)
		s = append(s, fieldList("The following fields of the objects will be preserved by the provider:", u.Preserving)...)
		if u.AlwaysRecreate {
			s = append(s, "Modification of said objects will be handled by deletion and recreation of said objects.")
		}
	}
	return s
}

func fieldList(title string, fields []string) []string {
	if len(fields) == 0 {
		return nil
	}
	return append([]string{title}, prefixed("  - ", fields)...)
}
