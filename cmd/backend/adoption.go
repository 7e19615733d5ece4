// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/klutch-go/sdk/export"
)

// runAdoption takes tenants of Klutch's own backend over, or gives them back. Without --yes
// it says what it would do.
func runAdoption(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f, opts, yes := &flags{}, export.AdoptionOptions{}, false
	adopts := args[0] == "adopt-tenants"
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&f.kubeconfig, "kubeconfig", getenv("KUBECONFIG"), "of an administrator of the Control Plane Cluster")
	fs.Func("tenant", "namespace of a tenant, may be repeated; none means all", appendTo(&opts.Tenants))
	fs.BoolVar(&yes, "yes", false, "do it; without it the steps are shown")
	if adopts {
		fs.StringVar(&opts.Issuer, "issuer", "", "OpenID Connect issuer with which the holders signed in, as --oidc-issuer-url of the backend")
		fs.BoolVar(&opts.Revoke, "revoke-tokens", false, "revoke the tokens of Klutch's backend now: those App Clusters have to bind again")
	}
	switch err := fs.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", err, errUsage)
	case fs.NArg() > 0:
		return fmt.Errorf("unknown argument %q: %w", fs.Arg(0), errUsage)
	case adopts && opts.Issuer == "":
		return fmt.Errorf("--issuer is required: %w", errUsage)
	}
	if err := f.connect(); err != nil {
		return err
	}
	list := func() ([]export.AdoptionPlan, error) { return export.Release(ctx, f.backend.Config, opts.Tenants...) }
	if adopts {
		list = func() ([]export.AdoptionPlan, error) { return export.Adopt(ctx, f.backend.Config, opts) }
	}
	plans, err := list()
	if err != nil {
		return err
	}
	return carryOut(ctx, plans, yes, stdout)
}

// carryOut shows the steps of all tenants and, if they are meant, does them.
func carryOut(ctx context.Context, plans []export.AdoptionPlan, yes bool, out io.Writer) error {
	problems := 0
	for _, plan := range plans {
		_, _ = fmt.Fprintf(out, "tenant %s of %s\n", plan.Tenant, plan.Holder)
		if plan.Problem != "" {
			problems++
			_, _ = fmt.Fprintln(out, "  cannot be done:", plan.Problem)
			continue
		}
		for _, step := range plan.Steps {
			_, _ = fmt.Fprintln(out, " ", step.Text)
			if !yes {
				continue
			}
			if err := step.Do(ctx); err != nil {
				return fmt.Errorf("tenant %s: %s: %w; run the command again when that is settled", plan.Tenant, step.Text, err)
			}
		}
		if plan.Note != "" {
			_, _ = fmt.Fprintln(out, "  note:", plan.Note)
		}
	}
	if len(plans) == 0 {
		_, _ = fmt.Fprintln(out, "no such tenants")
	}
	if !yes && len(plans) > 0 {
		_, _ = fmt.Fprintln(out, "nothing was changed; --yes does it")
	}
	if problems > 0 {
		return fmt.Errorf("%d tenants cannot be done", problems)
	}
	return nil
}
