// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/doctor"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// until looks at an object, soon again and then every second, until done returns true
// or an error, or ctx ends. A nil object is one that is not there.
func until[T any](ctx context.Context, r dynamic.ResourceInterface, name string, done func(*T) (bool, error)) error {
	for d := 50 * time.Millisecond; ; d = min(2*d, time.Second) {
		o, err := cluster.Get[T](ctx, r, name)
		if err == nil {
			var end bool
			if end, err = done(o); end || err != nil {
				return err
			}
		} else if ctx.Err() == nil && !cluster.IsNoAnswer(err) {
			return err
		}
		if end := cluster.Pause(ctx, d); end != nil {
			return fmt.Errorf("wait for %s: %w", name, end)
		}
	}
}

// retry calls fn for some ten seconds while again says so.
func retry(ctx context.Context, again func(error) bool, fn func() error) error {
	for range 20 {
		err := fn()
		if err == nil || !again(err) {
			return err
		}
		if end := cluster.Pause(ctx, 500*time.Millisecond); end != nil {
			return fmt.Errorf("%w: %w", err, end)
		}
	}
	return fn()
}

// ErrNotReady says that something did not happen before ctx ended.
var ErrNotReady = errors.New("not ready")

// WaitReady waits until the named bindings are Ready and their platforms have heard the konnector,
// or ctx ends, and returns them as they are then. With the deadline of ctx the error is ErrNotReady and says what
// the conditions say. Progress is told, a line each, what is waited for.
func WaitReady(ctx context.Context, config *rest.Config, names []string, progress func(string)) ([]v1alpha1.APIServiceBinding, error) {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return nil, err
	}
	var all []v1alpha1.APIServiceBinding
	var notReady []error
	for _, name := range names {
		b, err := waitReady(ctx, app, name, progress)
		if err != nil && !errors.Is(err, ErrNotReady) {
			return nil, err
		}
		notReady = append(notReady, err)
		all = append(all, *b)
	}
	return all, errors.Join(notReady...)
}

// IsReady reports whether the konnector keeps the objects of a binding in step: its condition
// Ready is that of the present spec, and more than the kubeconfig Secret has been looked at.
func IsReady(b v1alpha1.APIServiceBinding) bool { return cluster.IsReady(&b) }

// mostUnanswered is how often in a row a platform is asked whether it hears the konnector, which
// may reach it where this command does not.
const mostUnanswered = 3

// waitReady believes conditions that may be older than the bind with the word of the platform
// that it hears the konnector, or where the platform does not answer.
func waitReady(ctx context.Context, app *cluster.App, name string, p progress) (*v1alpha1.APIServiceBinding, error) {
	unanswered := 0
	last, say, why := &v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}, p.changes(), ""
	err := until(ctx, app.Bindings(), name, func(b *v1alpha1.APIServiceBinding) (bool, error) {
		if b == nil {
			return false, fmt.Errorf("APIServiceBinding %s is gone", name)
		}
		before := why
		last, why = b, ""
		if !cluster.IsReady(b) {
			why = cluster.WaitingFor(b)
			if len(b.Status.Conditions) == 0 {
				why += idle(ctx, app)
			}
		} else if awaited, err := cluster.Unheard(ctx, app, b.Spec.KubeconfigSecretRef); awaited != "" {
			why, unanswered = ": the platform says: "+awaited, 0
		} else if unanswered++; ctx.Err() != nil || cluster.IsNoAnswer(err) && unanswered < mostUnanswered {
			why = ": the platform does not say whether it hears the konnector: " + cluster.Explain(err)
			if ctx.Err() != nil {
				why = cmp.Or(before, why) // the last question was cut off
			}
		} else {
			return true, nil
		}
		say("Waiting for " + name + why)
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return last, fmt.Errorf("%s is %w%s", name, ErrNotReady, why)
	}
	return last, err
}

// idle is why no konnector takes a binding up, as far as its Lease and its pods tell; empty, or after a semicolon.
func idle(ctx context.Context, app *cluster.App) (why string) {
	if holder, wrong := doctor.Konnector(ctx, app, time.Now()); doctor.Silent(holder, wrong) {
		why = "; " + wrong
	}
	return why + podTrouble(ctx, app)
}
