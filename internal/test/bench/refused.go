// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// refused is what objects cost that a policy of the control plane refuses, once their users know,
// and the latency of a binding beside them.
func refused(ctx context.Context, c contest, b *bench) (figures []figure, err error) {
	quiet := c.batch("beside", gadgets)
	quiet.size = c.singles
	if err := quiet.warm(ctx); err != nil {
		return nil, err
	}
	usual, err := quiet.p99(ctx)
	if err != nil {
		return nil, err
	}
	policy, err := manifests(refusal)
	if err != nil {
		return nil, err
	}
	if err := stack.Apply(ctx, b.Control, policy...); err != nil {
		return nil, err
	}
	wait(ctx, 5*time.Second) // API servers take a while to know their policies
	many := c.batch("refused", widgets)
	many.size = c.refusals
	begin := time.Now()
	if err := many.each(ctx, batch.create); err != nil {
		return nil, err
	}
	if err := c.told(ctx, many.size); err != nil {
		return nil, err
	}
	figures = []figure{{"until all are told, s", time.Since(begin).Seconds(), goal{}}}
	atRest, err := c.rates(ctx, c.idle/2)
	if err != nil {
		return figures, err
	}
	p99, err := quiet.p99(ctx)
	return append(figures,
		figure{"at rest, requests/s on the control plane", atRest[inControl], atMost(1)},
		figure{"at rest, requests/s on the App Cluster", atRest[inApp], goal{}},
		figure{"up beside them, p99 × alone", p99.up / usual.up, atMost(1.2)},
		figure{"down beside them, p99 × alone", p99.down / usual.down, atMost(1.2)}), err
}

// told waits until the binding counts so many objects as refused.
func (c contest) told(ctx context.Context, n int) error {
	binding := fmt.Sprintf("/apis/%s/namespaces/%s/apiservicebindings/%s.%s", v1alpha1.GroupVersion, v1alpha1.Namespace, widgets, group)
	var data []byte
	for range 600 {
		var err error
		if data, err = c.app.client.Get().AbsPath(binding).DoRaw(ctx); err != nil {
			return err
		}
		if strings.Contains(string(data), fmt.Sprintf("%d TargetRefused", n)) {
			return nil
		}
		wait(ctx, time.Second)
	}
	return errors.New("the refusals are not told in ten minutes: " + string(data))
}

// rates are how many requests a second about our group each API server answers.
func (d *driver) rates(ctx context.Context, during time.Duration) (map[side]float64, error) {
	rates, errs := map[side]float64{}, make([]error, 0, 4)
	count := func(times float64) {
		for _, s := range []side{inApp, inControl} {
			n, err := d.api(s).answered(ctx)
			rates[s], errs = rates[s]+times*float64(n)/during.Seconds(), append(errs, err)
		}
	}
	count(-1)
	wait(ctx, during)
	count(1)
	return rates, errors.Join(append(errs, context.Cause(ctx))...)
}

func (a *api) answered(ctx context.Context) (int, error) {
	stream, err := a.client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	defer func() { _ = stream.Close() }()
	return countRequests(stream, append([]string{"GET", "LIST"}, writeVerbs...))
}

// refusal is a policy that refuses all widgets, whatever their size.
const refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-widgets}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [bench.example.org], apiVersions: [v1], operations: [CREATE], resources: [widgets]}
  validations:
    - {expression: "false", message: there is no room for widgets}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-widgets}
spec:
  policyName: no-widgets
  validationActions: [Deny]
`
