// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/klutch-go/sdk/examples/catalog/engine"
)

// Annotations of a credentials Secret.
const (
	bindingIDAnnotation  = "anynines.com/service-binding-id"
	instanceIDAnnotation = "anynines.com/service-instance-id"
)

// Binding makes credentials for an instance. They live as long as the binding and
// the instance do: an instance made anew gets new ones.
func (w *world) binding(ctx context.Context, c claim) (managed, error) {
	state, err := w.stateOf(ctx, c, c.text("spec", "instanceRef"))
	if err != nil {
		return nil, w.withoutInstance(ctx, c, err)
	}
	if err := w.revoke(ctx, c, state.Data[idKey]); err != nil {
		return nil, err
	}
	secret, found, err := find(ctx, w.secrets(c), c)
	if err != nil {
		return nil, err
	}
	server, err := w.serverOf(ctx, typeOf(c), state)
	if err == nil && !found {
		secret, err = w.issue(ctx, c, state, server)
	}
	if err == nil && server != nil {
		err = troubled(server.Grant(ctx, string(secret.Data["username"]), string(secret.Data["password"])))
	}
	if err != nil {
		return nil, err
	}
	return managed{
		"state": string(Created), "implemented": true,
		"serviceBindingID": secret.Annotations[bindingIDAnnotation],
		"secret":           map[string]any{"name": secret.Name, "namespace": secret.Namespace},
	}, nil
}

// withoutInstance takes back credentials for an instance that is known to be gone,
// which a failed read does not show, and returns the reason.
func (w *world) withoutInstance(ctx context.Context, c claim, reason error) error {
	if _, known := errors.AsType[*hold](reason); !known {
		return reason
	}
	if err := w.revoke(ctx, c, ""); err != nil {
		return err
	}
	return reason
}

func (w *world) issue(ctx context.Context, c claim, state *corev1.ConfigMap, server engine.Server) (*corev1.Secret, error) {
	offer := products[slices.IndexFunc(products, func(p product) bool { return p.serviceInstanceType == typeOf(c) })]
	at := engine.Endpoint{
		Scheme: offer.scheme, Port: offer.port, Database: offer.database,
		Host: fmt.Sprintf("%s-master.%s.svc", c.text("spec", "instanceRef"), c.GetNamespace()),
	}
	if server != nil {
		at = server.Endpoint()
	}
	secret := &corev1.Secret{ObjectMeta: c.madeMeta(), StringData: credentials(at, userOf(c))}
	secret.Annotations[bindingIDAnnotation] = string(uuid.NewUUID())
	secret.Annotations[instanceIDAnnotation] = state.Data[idKey]
	secret, err := w.secrets(c).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("issue credentials: %w", err)
	}
	return secret, nil
}

// Revoke deletes credentials for any instance but the one with this identifier.
func (w *world) revoke(ctx context.Context, c claim, instanceID string) error {
	secret, found, err := find(ctx, w.secrets(c), c)
	if err != nil || !found || secret.Annotations[instanceIDAnnotation] == instanceID {
		return err
	}
	gone, err := remove(ctx, w.secrets(c), c)
	if err == nil && !gone {
		err = wait(InstanceNotReady, "the credentials for the instance that was there before are being deleted")
	}
	return err
}

func credentials(at engine.Endpoint, user string) map[string]string {
	password := rand.Text()
	uri := url.URL{
		Scheme: at.Scheme, User: url.UserPassword(user, password),
		Host: net.JoinHostPort(at.Host, at.Port), Path: "/" + at.Database,
	}
	return map[string]string{
		"username": user, "password": password, "database": at.Database,
		"host": at.Host, "port": at.Port, "uri": uri.String(),
	}
}

// stateOf reads the state of the instance that c names, from the API server: an
// instance that a cache does not know yet may exist. A missing instance is a hold.
func (w *world) stateOf(ctx context.Context, c claim, name string) (*corev1.ConfigMap, error) {
	offer, ok := kindOf(typeOf(c) + "instances")
	if !ok {
		return nil, refuse(ServiceNotOffered, "serviceInstanceType %s is not on offer", typeOf(c))
	}
	instance, found, err := w.sibling(ctx, c, offer.name, name)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, refuse(InstanceNotFound, "there is no %s %s in this namespace", offer.name, name)
	}
	state, found, err := find(ctx, w.configMaps(instance), instance)
	_, taken := errors.AsType[*hold](err)
	switch {
	case taken || err == nil && !found:
		return nil, wait(InstanceNotReady, "%s %s is not running yet", offer.name, name)
	case err != nil:
		return nil, err
	}
	return state, nil
}

// Sibling reads another claim of c's namespace. One that is being deleted counts as gone.
func (w *world) sibling(ctx context.Context, c claim, kindName, name string) (claim, bool, error) {
	k, _ := kindOf(kindName)
	u, err := w.dyn.Resource(k.gvr()).Namespace(c.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return claim{}, false, nil
	case err != nil:
		return claim{}, false, fmt.Errorf("read %s: %w", name, err)
	}
	return claim{k, u}, u.GetDeletionTimestamp() == nil, nil
}
