// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/cluster"
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
	if err := i.askAdoption(ctx); err != nil {
		return nil, err
	}
	return i.write(ctx)
}

var (
	// ErrBound says that APIs are bound, for which the konnector is needed.
	ErrBound = errors.New("still bound")
	// ErrNoKonnector says that no konnector is installed in the App Cluster.
	ErrNoKonnector = errors.New("no konnector is installed in this cluster")
)

// konnectorDeployment is the name that every program of Klutch gives it.
const konnectorDeployment = "konnector"

var deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

// KonnectorOptions say how a konnector is installed, or removed.
type KonnectorOptions struct {
	// Manifests are the konnector's, the namespace first.
	Manifests []*unstructured.Unstructured
	// Force takes fields over that another field manager has set. Without it that is
	// an error, and nothing is changed.
	Force bool
	// DryRun, if not empty, changes nothing.
	DryRun DryRun
	// Progress is told, a line each, what has been done and what is waited for.
	Progress func(string)
}

// KonnectorImage returns the image of the konnector that is installed; the error is
// ErrNoKonnector if there is none.
func KonnectorImage(ctx context.Context, config *rest.Config) (string, error) {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return "", err
	}
	d, err := cluster.Get[appsv1.Deployment](ctx, app.Resource(deployments).Namespace(v1alpha1.Namespace), konnectorDeployment)
	switch {
	case err != nil:
		return "", fmt.Errorf("look for the konnector: %w", err)
	case d == nil:
		return "", ErrNoKonnector
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == konnectorDeployment {
			return c.Image, nil
		}
	}
	return "", nil
}

// InstallKonnector applies the manifests of a konnector, over those of another version if there
// are any. It does not wait for the konnector to run: see WaitKonnector.
func InstallKonnector(ctx context.Context, config *rest.Config, opts KonnectorOptions) error {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return err
	}
	i := &installer{app: app, opts: InstallOptions{Konnector: opts.Manifests, DryRun: opts.DryRun}, polite: !opts.Force}
	if opts.DryRun == "" { // a conflict is met before anything is changed
		i.opts.DryRun = DryRunServer
		if err := i.writeKonnector(ctx); err != nil {
			return err
		}
		i.opts.DryRun = ""
	}
	i.progress = opts.Progress
	return i.writeKonnector(ctx)
}

// ErrKonnectorNotReady is ErrNotReady of the konnector itself.
var ErrKonnectorNotReady = fmt.Errorf("the konnector is %w", ErrNotReady)

// WaitKonnector waits until all replicas of the konnector run what was applied last, or ctx
// ends. With the deadline of ctx, or of the Deployment, the error is ErrKonnectorNotReady.
func WaitKonnector(ctx context.Context, config *rest.Config, told func(string)) error {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return err
	}
	why, say := "the cluster has not told yet", progress(told).changes()
	err = until(ctx, app.Resource(deployments).Namespace(v1alpha1.Namespace), konnectorDeployment, func(d *appsv1.Deployment) (bool, error) {
		if d == nil {
			return false, ErrNoKonnector
		}
		runs, text := rollout(d)
		if runs {
			return true, nil
		}
		why = text + podTrouble(ctx, app)
		say("Waiting for the konnector: " + why)
		for _, c := range d.Status.Conditions {
			late := c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
			if late && d.Status.ObservedGeneration >= d.Generation {
				return false, fmt.Errorf("%w: %s: %s", ErrKonnectorNotReady, why, c.Message)
			}
		}
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %s", ErrKonnectorNotReady, why)
	}
	return err
}

// rollout tells whether all replicas of a Deployment run its present template, and how many do.
func rollout(d *appsv1.Deployment) (done bool, text string) {
	s, want := d.Status, int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	if s.ObservedGeneration < d.Generation {
		return false, "the cluster has not looked at it yet"
	}
	n := min(s.UpdatedReplicas, s.AvailableReplicas)
	return n == want && s.Replicas == want, fmt.Sprintf("%d of %d replicas run it", n, want)
}

// podTrouble says why a pod of the konnector does not run, if one does not.
func podTrouble(ctx context.Context, app *cluster.App) string {
	pods := app.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(v1alpha1.Namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + konnectorDeployment})
	if err != nil {
		return ""
	}
	for n := range list.Items {
		pod, err := cluster.Decode[corev1.Pod](&list.Items[n])
		if err != nil {
			continue
		}
		why := ""
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				why = cmp.Or(c.Message, c.Reason)
			}
		}
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
				why = strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
			}
		}
		if why != "" {
			return "; pod " + pod.Name + ": " + why
		}
	}
	return ""
}

// programs are the kinds that run a program: they are removed before the objects that the program needs.
var programs = map[string]int{"Deployment": 1}

// UninstallKonnector deletes what InstallKonnector applied and returns it. The error is ErrBound,
// and nothing is deleted, while APIs are bound. The namespace and the CRD of bindings
// stay: platforms know the App Cluster by the namespace.
func UninstallKonnector(ctx context.Context, config *rest.Config, opts KonnectorOptions) (deleted []*unstructured.Unstructured, err error) {
	app, bound, err := openBound(ctx, config)
	if err != nil {
		return nil, err
	}
	if len(bound) > 0 {
		names := make([]string, len(bound))
		for n, b := range bound {
			names[n] = b.Name
		}
		return nil, fmt.Errorf("the konnector is needed while APIs are bound, %s: %w", strings.Join(names, ", "), ErrBound)
	}
	r := &remover{App: app, progress: opts.Progress, dryRun: opts.DryRun, propagation: metav1.DeletePropagationForeground}
	manifests := slices.Clone(opts.Manifests)
	slices.SortStableFunc(manifests, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(programs[a.GetKind()], programs[b.GetKind()])
	})
	for _, u := range slices.Backward(manifests) {
		resource, err := resourceOf(ctx, app, u)
		if err != nil {
			return deleted, err
		}
		client := r.Resource(resource).Namespace(u.GetNamespace())
		found, err := cluster.Get[metav1.PartialObjectMetadata](ctx, client, u.GetName())
		if err != nil {
			return deleted, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		if found == nil || u.GetKind() == "Namespace" || u.GetKind() == "CustomResourceDefinition" {
			continue
		}
		if err := r.delete(ctx, client, u.GetKind(), u.GetName()); err != nil {
			return deleted, err
		}
		deleted = append(deleted, u)
	}
	leases := app.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(v1alpha1.Namespace)
	return deleted, r.delete(ctx, leases, "Lease", v1alpha1.LeaseName)
}
