// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Install binds the requested APIs in the App Cluster that config leads to. In this
// order: it looks for conflicts; makes the requests in the Control Plane Cluster
// and waits until they are answered; has the permission claims answered; and only
// then writes to the App Cluster: the namespace klutch-bind, the CRD of bindings,
// the kubeconfig Secret, the konnector's rights per API, the konnector,
// the bindings. It may be repeated at any time.
//
// It blocks until ctx ends at the longest. Its errors are, among others,
// ErrConflict, ErrNotReady, ErrPolicy, a ConsentError and a RequestError. It does
// not wait for the konnector to do its part: see WaitReady.
func Install(ctx context.Context, config *rest.Config, opts InstallOptions) ([]v1alpha1.APIServiceBinding, error) {
	i, err := newInstaller(config, opts)
	if err != nil {
		return nil, err
	}
	if err := i.look(ctx); err != nil {
		return nil, err
	}
	if err := i.chooseSecret(ctx); err != nil {
		return nil, err
	}
	asks := &requester{progress: i.progress, dryRun: opts.DryRun, tenant: i.tenant, target: i.target}
	exports, claims, err := asks.request(ctx, opts.Requests)
	if err != nil {
		return nil, err
	}
	i.consents = &consents{
		progress: i.progress, did: i.did, services: i.services, answer: opts.Answer, discovery: i.app.Discovery,
		existing: i.existing, exports: exports, answers: map[string][]v1alpha1.AcceptablePermissionClaim{},
	}
	if err := i.consents.ask(ctx, claims); err != nil {
		return nil, err
	}
	return i.write(ctx)
}
