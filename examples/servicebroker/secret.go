// SPDX-License-Identifier: Apache-2.0

package servicebroker

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/examples/servicebroker/osb"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func (c *Controller) secrets(t *thing) dynamic.ResourceInterface {
	return c.Client.Resource(secrets).Namespace(t.u.GetNamespace())
}

func secretName(u *unstructured.Unstructured) string {
	return cmp.Or(text(u, "spec", "writeConnectionSecretToRef", "name"), u.GetName()+"-service-binding")
}

// bound writes the credentials into the Secret. What the broker says neither with the binding nor
// when it is asked for them, it does not say any more: the binding is deleted there and made anew,
// at once the first time, and after pauses where it goes on.
func (c *Controller) bound(ctx context.Context, t *thing, answer osb.Answer) (err error) {
	if len(answer.Credentials) == 0 {
		answer, err = c.Broker.Fetch(ctx, t.request(c.Cluster))
	}
	e, refused := errors.AsType[*osb.Error](err)
	switch {
	case err == nil && len(answer.Credentials) > 0:
		return c.issue(ctx, t, answer)
	case err != nil && (!refused || !unretrievable(e)):
		t.Doing = "create" // asked again; it is there
		return err
	case t.Anew:
		t.Doing, t.State = "clean", "Failed"
		return &osb.Error{Description: "the broker gives no credentials: ask the platform team", RetryAfter: resync}
	}
	t.Doing, t.State, t.Anew = "clean", "Pending", true
	return c.tell(ctx, t, "CredentialsLost", "the broker does not say the credentials again: they are deleted there, and new ones are made")
}

// unretrievable tells whether the broker does not give the credentials of a binding, now or later.
func unretrievable(e *osb.Error) bool {
	passing := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests}
	return e.Status/100 == 4 && e.Code != "ConcurrencyError" && !slices.Contains(passing, e.Status)
}

// issue writes the credentials into the Secret that the binding names.
func (c *Controller) issue(ctx context.Context, t *thing, answer osb.Answer) error {
	data := map[string]any{}
	for key, value := range answer.Credentials {
		content, isText := value.(string)
		if !isText {
			encoded, err := json.Marshal(value)
			if err != nil {
				return err
			}
			content = string(encoded)
		}
		data[key] = base64.StdEncoding.EncodeToString([]byte(content))
	}
	controller := true
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data}}
	secret.SetName(secretName(t.u))
	secret.SetNamespace(t.u.GetNamespace())
	secret.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: t.u.GetAPIVersion(), Kind: t.u.GetKind(), Name: t.u.GetName(), UID: t.u.GetUID(), Controller: &controller,
	}})
	_, err := c.secrets(t).Create(ctx, secret, metav1.CreateOptions{FieldManager: "servicebroker"})
	if apierrors.IsAlreadyExists(err) {
		var old *unstructured.Unstructured
		if old, err = c.secrets(t).Get(ctx, secret.GetName(), metav1.GetOptions{}); err == nil && !metav1.IsControlledBy(old, t.u) {
			t.Doing, t.State = "create", "Failed"
			return c.tell(ctx, t, "NameTaken", "the name "+secret.GetName()+" is taken by another Secret")
		} else if err == nil {
			secret.SetResourceVersion(old.GetResourceVersion())
			_, err = c.secrets(t).Update(ctx, secret, metav1.UpdateOptions{FieldManager: "servicebroker"})
		}
	}
	if err == nil && t.Secret != nil && t.Secret.Name != secret.GetName() { // the claim has named another one
		err = c.removeSecret(ctx, t, t.Secret.Name)
	}
	if err != nil {
		return err
	}
	t.Applied, t.State, t.Secret, t.Anew = "bound", "Created", &named{secret.GetName(), secret.GetNamespace()}, false
	message := ""
	if answer.Expires != "" {
		message = "the credentials end at " + answer.Expires + ", as the broker says, and are not renewed: change to another ServiceBinding before that"
	}
	return c.tell(ctx, t, "Available", message)
}

// keepSecret asks for the credentials again when the Secret is lost.
func (c *Controller) keepSecret(ctx context.Context, t *thing) error {
	_, err := c.secrets(t).Get(ctx, secretName(t.u), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		t.Applied, t.State = "", "Pending"
		return c.tell(ctx, t, "Creating", "")
	}
	return err
}

// removeSecret deletes a Secret of that name if it is the binding's own.
func (c *Controller) removeSecret(ctx context.Context, t *thing, name string) error {
	secret, err := c.secrets(t).Get(ctx, name, metav1.GetOptions{})
	if err != nil || !metav1.IsControlledBy(secret, t.u) {
		return ignoreGone(err)
	}
	uid := secret.GetUID()
	return ignoreGone(c.secrets(t).Delete(ctx, secret.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
}
