// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An installation is what both ways to bind have in common.
type installation struct {
	*plugin
	output        *output
	dryRun        string
	claims        claimAnswers
	adopt         int32
	wait          bool
	timeout       time.Duration
	image         string
	skipKonnector bool

	backend   string       // at which the login was
	config    *rest.Config // after prepare
	konnector []*unstructured.Unstructured
}

func newInstallation(p *plugin, cmd *cobra.Command) *installation {
	i := &installation{plugin: p, output: newOutput(cmd)}
	flags := cmd.Flags()
	addDryRun(cmd, &i.dryRun)
	flags.BoolVarP(&i.claims.yes, "yes", "y", false, "Accept the permission claims on Secrets and ConfigMaps that are not answered, and that --reject-claim does not name. Others need --accept-claim.")
	flags.StringArrayVar(&i.claims.accept, "accept-claim", nil, "Accept a permission claim: [SERVICE/]RESOURCE[.GROUP]; may be repeated")
	flags.StringArrayVar(&i.claims.reject, "reject-claim", nil, "Reject a permission claim: [SERVICE/]RESOURCE[.GROUP]; may be repeated")
	flags.Int32Var(&i.adopt, "adopt", -1, "Let up to this number of objects of each API that the provider makes become claims in this cluster; 0 is none. Default is what the binding says, and none for a new one.")
	flags.BoolVar(&i.wait, "wait", true, "Wait until the bindings are ready")
	flags.DurationVar(&i.timeout, "timeout", 10*time.Minute, "How long to wait for everything together; 0 is for ever")
	return i
}

// addKonnector lets an installation see to the konnector.
func addKonnector(cmd *cobra.Command, i *installation) *installation {
	cmd.Flags().StringVar(&i.image, "konnector-image", "", "Run the konnector in this cluster with this image")
	cmd.Flags().BoolVar(&i.skipKonnector, "skip-konnector", false, "Leave the konnector alone: it runs elsewhere, or is installed by other means")
	return i
}

func addDryRun(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "dry-run", "none", `Change nothing: "none", "client" (send no writes) or "server" (have the API servers check them)`)
	cmd.Flag("dry-run").NoOptDefVal = "client"
}

func checkDryRun(value string) error {
	switch value {
	case "none", "client", "server":
		return nil
	}
	return usageError{fmt.Sprintf("--dry-run=%s: neither none, client nor server", value)}
}

func dryRun(value string) bind.DryRun {
	return map[string]bind.DryRun{"client": bind.DryRunClient, "server": bind.DryRunServer}[value]
}

// check finds mistakes in the command line before anything happens.
func (i *installation) check() error {
	if i.image != "" && i.skipKonnector {
		return usageError{"--konnector-image and --skip-konnector exclude each other"}
	}
	if i.adopt < -1 || i.adopt > mostAdopted {
		return usageError{fmt.Sprintf("--adopt %d: a number from 0 to %d", i.adopt, mostAdopted)}
	}
	return errors.Join(i.claims.sensible(), checkDryRun(i.dryRun), i.output.check())
}

// mostAdopted is what the schema of bindings allows.
const mostAdopted = 1000

// maxAdopted is nil where bindings stay as they are.
func (i *installation) maxAdopted() *int32 {
	if i.adopt < 0 {
		return nil
	}
	return &i.adopt
}

// prepare looks at the App Cluster, before a person is sent to a browser in vain.
func (i *installation) prepare(ctx context.Context) (err error) {
	if i.config, err = i.plugin.config(); err != nil {
		return err
	}
	i.konnector, err = i.konnectorManifests(ctx)
	return err
}

func (i *installation) install(ctx context.Context, kubeconfig []byte, requests []v1alpha1.APIServiceExportRequest) error {
	var applied []*unstructured.Unstructured
	bindings, err := bind.Install(ctx, i.config, bind.InstallOptions{
		Kubeconfig:  kubeconfig,
		Backend:     i.backend,
		Requests:    requests,
		Answer:      i.answer(i.claims),
		MaxAdopted:  i.maxAdopted(),
		AskAdoption: i.askAdoption,
		Konnector:   i.konnector,
		Applied:     func(u *unstructured.Unstructured) { applied = append(applied, u) },
		DryRun:      dryRun(i.dryRun),
		Progress:    i.say,
	})
	if err != nil {
		return err
	}
	if i.dryRun != "none" {
		return i.printObjects(i.output.orYAML(), forRepository(i, applied))
	}
	var notReady error
	if i.wait {
		bindings, notReady = bind.WaitReady(ctx, i.config, bindingNames(bindings), i.say)
	}
	if notReady != nil && !errors.Is(notReady, bind.ErrNotReady) {
		return notReady
	}
	return errors.Join(i.printBindings(i.output, bindings), notReady)
}

// forRepository are the objects of a dry run that people keep: all but the credential, which
// the konnector renews, and what comes with the konnector. Their order does not matter.
func forRepository(i *installation, applied []*unstructured.Unstructured) (objects []runtime.Object) {
	place := map[string]int{}
	for _, u := range applied {
		switch kind := u.GetKind(); {
		case kind == "Secret":
			i.sayf("Not printed: secret %s/%s, which the bindings refer to. It holds the credential, which the konnector renews.", u.GetNamespace(), u.GetName())
			continue
		case kind == "CustomResourceDefinition", kind == "Namespace" && i.image == "":
			continue
		}
		id := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		if at, twice := place[id]; twice {
			objects[at] = u
			continue
		}
		place[id] = len(objects)
		objects = append(objects, u)
	}
	return objects
}

func bindingNames(bindings []v1alpha1.APIServiceBinding) []string {
	names := make([]string, len(bindings))
	for n, b := range bindings {
		names[n] = b.Name
	}
	return names
}
