// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	silentKinds  = 10
	silentEach   = 30       // objects of each
	silentTenant = "silent" // tenant namespace of the control plane that falls silent, and the namespace of its objects
	silentSpace  = "svc-silent"
)

// silentSizes are what the objects, which are made small, are changed to one after the other.
var silentSizes = [2]string{"big", "large"}

// A hush is a second connection of the konnector, which falls silent. Its tenant is made
// by hand: what a backend does for one is not the matter.
type hush struct {
	*bench
	line *cluster.Line
}

// silence is the latency of a tenant whose control plane answers, alone and while another
// control plane hangs from which ten kinds are bound. Their objects go on to be changed.
func silence(ctx context.Context, b *bench) (figures []figure, err error) {
	c := contest{options: b.options, driver: b.driver, who: klutch, process: b.Konnector}
	quiet := c.batch("healthy", gadgets)
	quiet.size = c.singles
	h := &hush{bench: b}
	if h.line, err = cluster.NewLine(ctx, b.Control.URL()); err != nil {
		return nil, err
	}
	if err := b.Konnector.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Konnector.Stop()) }()
	if err := quiet.warm(ctx); err != nil {
		return nil, err
	}
	if err := b.Backend.Stop(); err != nil { // it knows nothing of that tenant
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Backend.Start(ctx)) }()
	if err := h.bind(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, b.Konnector.LastWords())
	}
	return h.compare(ctx, quiet)
}

// compare measures alone before and after, since a machine has other work too: of one measurement a ratio says
// what else went on then.
func (h *hush) compare(ctx context.Context, quiet batch) ([]figure, error) {
	before, err := quiet.p99(ctx)
	if err != nil {
		return nil, err
	}
	first, second, err := h.beside(ctx, quiet)
	if err != nil {
		return nil, err
	}
	if err := h.caughtUp(ctx); err != nil {
		return nil, err
	}
	after, err := quiet.p99(ctx)
	if err != nil {
		return nil, err
	}
	if note := unlike(before, after); note != "" {
		h.report.condition("silence", "%s", note)
	}
	usual := ways{median([]float64{before.up, after.up}), median([]float64{before.down, after.down})}
	figures := []figure{{"up alone, p99 ms", usual.up, goal{}}, {"down alone, p99 ms", usual.down, goal{}}}
	for _, change := range []struct {
		which string
		p99   ways
	}{{"first", first}, {"second", second}} {
		beside, p99 := " beside a control plane that hangs, 10 kinds, "+change.which+" change, p99 × alone", change.p99
		figures = append(figures, figure{"up" + beside, p99.up / usual.up, atMost(2)}, figure{"down" + beside, p99.down / usual.down, atMost(2)})
	}
	return figures, nil
}

// unlike says how alone was before and after, if they differ by more than a quarter.
func unlike(before, after ways) string {
	const quarter = 1.25
	if max(before.up, after.up) <= quarter*min(before.up, after.up) && max(before.down, after.down) <= quarter*min(before.down, after.down) {
		return ""
	}
	return fmt.Sprintf("p99 alone was %s ms up and %s ms down before, %s and %s after: other work of the machine is in all ratios",
		number(before.up), number(before.down), number(after.up), number(after.down))
}

// beside measures quiet while the objects of the other control plane are changed, once and, while calls wait for
// an answer to that, once more.
func (h *hush) beside(ctx context.Context, quiet batch) (first, second ways, err error) {
	h.line.Hush(0)
	defer h.line.Speak()
	for i, p99 := range []*ways{&first, &second} {
		if err := h.each(ctx, func(b batch) error {
			return b.each(ctx, func(b batch, ctx context.Context, n int) error { return b.resize(ctx, n, silentSizes[i]) })
		}); err != nil {
			return first, second, err
		}
		if *p99, err = quiet.p99(ctx); err != nil {
			return first, second, err
		}
	}
	return first, second, nil
}

// caughtUp waits until the second change of all objects has arrived.
func (h *hush) caughtUp(ctx context.Context) error {
	return h.each(ctx, func(b batch) error {
		return until(ctx, func() error {
			data, err := h.driver.control.client.Get().AbsPath(path(b.resource, silentSpace)).DoRaw(ctx)
			if n := strings.Count(string(data), `"size":"`+silentSizes[1]+`"`); err == nil && n < silentEach {
				err = fmt.Errorf("%d of %d objects have caught up", n, silentEach)
			}
			return err
		})
	})
}

// each calls do with the objects of each kind.
func (h *hush) each(ctx context.Context, do func(batch) error) error {
	for i := range silentKinds {
		b := batch{driver: h.driver, resource: silentKind(i), name: "x", size: silentEach, namespaces: 1, in: silentTenant}
		if err := do(b); err != nil {
			return fmt.Errorf("%s: %w", b.resource, err)
		}
	}
	return ctx.Err()
}

func silentKind(i int) string { return fmt.Sprintf("silent%ds", i) }

// bind has objects of all kinds in step through the line.
func (h *hush) bind(ctx context.Context) error {
	if err := h.driver.makeNamespaces(ctx, silentTenant); err != nil {
		return err
	}
	tenant, err := manifests(tenantManifest)
	if err != nil {
		return err
	}
	if err := stack.Apply(ctx, h.Control, tenant...); err != nil {
		return err
	}
	if err := h.connect(ctx); err != nil {
		return err
	}
	for i := range silentKinds {
		if err := h.bindKind(ctx, silentKind(i)); err != nil {
			return err
		}
	}
	return h.begin(ctx)
}

// connect makes the Secret whose kubeconfig leads through the line.
func (h *hush) connect(ctx context.Context) error {
	path, err := stack.Account(ctx, h.Control, h.Dir, silentTenant, v1alpha1.TenantServiceAccount)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	k, err := kubeconfig.Read(data)
	if err != nil {
		return err
	}
	k.Server = h.line.URL()
	if data, err = k.Write(); err != nil {
		return err
	}
	return stack.Apply(ctx, h.App, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": silentTenant, "namespace": v1alpha1.Namespace},
		"stringData": map[string]any{v1alpha1.KubeconfigKey: string(data)},
	}})
}

func (h *hush) bindKind(ctx context.Context, resource string) error {
	offer, err := offered(resource)
	if err != nil {
		return err
	}
	crd := offer[0]
	export := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSONValue(crd.Object["spec"])}}
	export.SetAPIVersion(v1alpha1.GroupVersion.String())
	export.SetKind("APIServiceExport")
	export.SetName(crd.GetName())
	export.SetNamespace(silentTenant)
	if err := unstructured.SetNestedField(export.Object, "Cluster", "spec", "informerScope"); err != nil {
		return err
	}
	typed := &v1alpha1.APIServiceExport{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(export.Object, typed); err != nil {
		return err
	}
	if err := stack.Apply(ctx, h.Control, crd, export); err != nil {
		return err
	}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceBinding",
		"metadata": map[string]any{"name": crd.GetName(), "namespace": v1alpha1.Namespace},
		"spec": map[string]any{"permissionClaims": []any{}, "kubeconfigSecretRef": map[string]any{
			"namespace": v1alpha1.Namespace, "name": silentTenant, "key": v1alpha1.KubeconfigKey,
		}},
	}}
	return stack.Apply(ctx, h.App, append(bind.Rights(typed.Spec, nil), binding)...)
}

// begin makes the objects and waits until they are in step.
func (h *hush) begin(ctx context.Context) error {
	space := "/apis/" + v1alpha1.GroupVersion.String() + "/namespaces/" + silentTenant + "/apiservicenamespaces/" + silentTenant + "/status"
	return h.each(ctx, func(b batch) error {
		err := until(ctx, func() error { _, _, err := h.driver.app.count(ctx, path(b.resource, "")); return err }) // served
		if err == nil {
			err = b.each(ctx, batch.create)
		}
		if err != nil {
			return err
		}
		return until(ctx, func() error {
			_ = h.driver.control.merge(ctx, space, []byte(`{"status":{"namespace":"`+silentSpace+`"}}`)) // once it is asked for
			n, _, err := h.driver.control.count(ctx, path(b.resource, silentSpace))
			if err == nil && n < silentEach {
				err = fmt.Errorf("%d of %d objects are in step", n, b.size)
			}
			return err
		})
	})
}

// until calls try again and again, for three minutes at most.
func until(ctx context.Context, try func() error) (err error) {
	for range 1800 {
		if err = try(); err == nil || ctx.Err() != nil {
			return err
		}
		wait(ctx, 100*time.Millisecond)
	}
	return err
}

// tenantManifest is a tenant that may do everything.
const tenantManifest = `
apiVersion: v1
kind: Namespace
metadata: {name: silent}
---
apiVersion: v1
kind: Namespace
metadata: {name: svc-silent}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: klutch-binder, namespace: silent}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: silent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: klutch-binder, namespace: silent}]
---
apiVersion: klutch.anynines.com/v1alpha1
kind: ClusterBinding
metadata: {name: cluster, namespace: silent}
spec:
  kubeconfigSecretRef: {name: kubeconfig, key: kubeconfig}
  providerPrettyName: Silent platform
`
