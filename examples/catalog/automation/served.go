// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/klutch-go/sdk/examples/catalog/engine"
)

// newID identifies a new instance or backup. What an engine keeps on disk has the UID of
// its claim, so that it is found also when the object made for the claim is gone.
func (w *world) newID(c claim, serviceInstanceType string) string {
	if w.engines[serviceInstanceType] != nil {
		return string(c.GetUID())
	}
	return string(uuid.NewUUID())
}

// typeOf returns the serviceInstanceType of a claim of any kind.
func typeOf(c claim) string {
	if service, ok := strings.CutSuffix(c.name, "Instance"); ok {
		return strings.ToLower(service)
	}
	return c.text("spec", "serviceInstanceType")
}

// serverOf returns the running server of an instance as its state orders it; nil where
// no engine runs this data service. The works of several claims come here at once, each with the
// state that it has read before: an older one must not undo a newer one, or run what was removed.
func (w *world) serverOf(ctx context.Context, serviceInstanceType string, state *corev1.ConfigMap) (engine.Server, error) {
	e, instance := w.engines[serviceInstanceType], metav1.GetControllerOf(state)
	if e == nil || instance == nil {
		return nil, nil //nolint:nilnil // no server is an answer
	}
	defer w.orders.Lock(string(instance.UID))()
	state, err := w.core.ConfigMaps(state.Namespace).Get(ctx, state.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (state.DeletionTimestamp != nil || !controls(instance, state)) {
		return nil, wait(InstanceNotReady, "the instance is being removed")
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of an instance: %w", err)
	}
	var parameters map[string]any
	if err := json.Unmarshal([]byte(state.Data[parametersKey]), &parameters); err != nil {
		return nil, err
	}
	plan, _ := sizeOf(state.Data[planKey])
	allowed := plan.connections
	if wanted, ok := parameters["maxConnections"].(float64); ok && int(wanted) < allowed {
		allowed = int(wanted)
	}
	server, err := e.Run(ctx, engine.Order{
		ID: string(instance.UID), Connections: allowed, MemoryMegaBytes: plan.memoryMegaBytes, Parameters: parameters,
	})
	return server, troubled(err)
}

// controls reports whether state is still that of an instance, not of another one of its name.
func controls(instance *metav1.OwnerReference, state *corev1.ConfigMap) bool {
	owner := metav1.GetControllerOf(state)
	return owner != nil && owner.UID == instance.UID
}

// userOf is the login of a binding, found again without its Secret.
func userOf(c claim) string {
	sum := sha256.Sum256([]byte(c.GetUID()))
	return "u" + hex.EncodeToString(sum[:])[:15]
}

// troubled is an error of an engine, which is told on the claim, and tried again.
func troubled(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	return &hold{Pending, EngineFailed, text[:min(len(text), 512)]}
}

// The works of claims that are being deleted: first what an engine has, then the object.

func (w *world) removeInstance(ctx context.Context, c claim) (bool, error) {
	defer w.orders.Lock(string(c.GetUID()))()
	if e := w.engines[typeOf(c)]; e != nil {
		if err := e.Remove(ctx, string(c.GetUID())); err != nil {
			return false, troubled(err)
		}
	}
	return remove(ctx, w.configMaps(c), c)
}

func (w *world) removeBackup(ctx context.Context, c claim) (bool, error) {
	if e := w.engines[typeOf(c)]; e != nil {
		if err := e.Discard(ctx, string(c.GetUID())); err != nil {
			return false, troubled(err)
		}
	}
	return remove(ctx, w.configMaps(c), c)
}

// removeBinding takes the login away before its Secret. One of an instance that is gone,
// or going, goes with it.
func (w *world) removeBinding(ctx context.Context, c claim) (bool, error) {
	if w.engines[typeOf(c)] != nil {
		state, err := w.stateOf(ctx, c, c.text("spec", "instanceRef"))
		if _, none := errors.AsType[*hold](err); err != nil && !none {
			return false, err
		} else if err == nil {
			server, err := w.serverOf(ctx, typeOf(c), state)
			if err == nil {
				err = troubled(server.Revoke(ctx, userOf(c)))
			}
			if err != nil {
				return false, err
			}
		}
	}
	return remove(ctx, w.secrets(c), c)
}
