// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// apiservice is the command that binds with a credential that is there already.
type apiservice struct {
	*installation
	file              string
	kubeconfig        string
	secretName, space string
}

func apiserviceCommand(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apiservice -f FILE {--remote-kubeconfig FILE | --remote-kubeconfig-name NAME}",
		Short: "Bind the APIs of export requests, without a login",
		Long: `Bind the APIs that APIServiceExportRequests name, without a login: with a kubeconfig
of the backend from a file, or from a Secret of this cluster. Only APIs that were
chosen at a login can be bound so.

With --dry-run=client it prints what a repository has to hold for that: roles, policies and
bindings, which refer to the Secret.`,
		Example: `  # From the requests of a dry run, with the credential of an earlier login
  kubectl bind https://klutch.example.com/export --service backups.anynines.com --dry-run=client -o yaml |
    kubectl bind apiservice -f - --remote-kubeconfig-name kubeconfig-4x7kq --yes

  # The same for a repository that Flux or Argo CD applies
  kubectl bind apiservice -f requests.yaml --remote-kubeconfig-name kubeconfig-4x7kq --yes --dry-run=client > bindings.yaml`,
		Args: noArgs,
	}
	a := &apiservice{installation: addKonnector(cmd, newInstallation(p, cmd))}
	flags := cmd.Flags()
	flags.StringVarP(&a.file, "file", "f", "", "File with APIServiceExportRequests; - is standard input")
	flags.StringVar(&a.kubeconfig, "remote-kubeconfig", "", "File with the kubeconfig of the backend")
	flags.StringVar(&a.secretName, "remote-kubeconfig-name", "", "Secret with the kubeconfig of the backend")
	flags.StringVar(&a.space, "remote-kubeconfig-namespace", v1alpha1.Namespace, "Namespace of that Secret")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.run(cmd.Context()) }
	return cmd
}

func (a *apiservice) run(ctx context.Context) error {
	switch {
	case a.file == "":
		return usageError{"-f FILE is missing: the requests to make"}
	case (a.kubeconfig == "") == (a.secretName == ""):
		return usageError{"give one of --remote-kubeconfig and --remote-kubeconfig-name"}
	}
	if err := a.check(); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, a.timeout)
	defer cancel()
	requests, err := a.readRequests()
	if err != nil {
		return err
	}
	if err := a.prepare(ctx); err != nil {
		return err
	}
	kubeconfig, err := a.readKubeconfig(ctx)
	if err != nil {
		return err
	}
	return a.install(ctx, kubeconfig, requests)
}

// readRequests takes all of stdin for -, so that no answers are left in it.
func (a *apiservice) readRequests() ([]v1alpha1.APIServiceExportRequest, error) {
	var data []byte
	var err error
	if a.file == "-" {
		data, err = io.ReadAll(a.answers)
		a.answers = bufio.NewReader(bytes.NewReader(nil))
	} else {
		data, err = os.ReadFile(a.file)
	}
	if err != nil {
		return nil, err
	}
	requests, err := bind.ReadRequests(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.file, err)
	}
	return requests, nil
}

func (a *apiservice) readKubeconfig(ctx context.Context) ([]byte, error) {
	if a.kubeconfig != "" {
		return os.ReadFile(a.kubeconfig)
	}
	return readSecret(ctx, a.config, a.space, a.secretName)
}

// readSecret returns the kubeconfig in a Secret.
func readSecret(ctx context.Context, config *rest.Config, namespace, name string) ([]byte, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	secret, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, err)
	}
	data, ok := secret.Data[v1alpha1.KubeconfigKey]
	if !ok {
		return nil, fmt.Errorf("secret %s/%s has no key %s", namespace, name, v1alpha1.KubeconfigKey)
	}
	return data, nil
}
