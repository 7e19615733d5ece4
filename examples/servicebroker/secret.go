// SPDX-License-Identifier: Apache-2.0

package servicebroker

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func (c *Controller) secrets(t *thing) dynamic.ResourceInterface {
	return c.Client.Resource(secrets).Namespace(t.u.GetNamespace())
}

func secretName(u *unstructured.Unstructured) string {
	return cmp.Or(text(u, "spec", "writeConnectionSecretToRef", "name"), u.GetName()+"-service-binding")
}

// issue writes the credentials into the Secret that the binding names.
func (c *Controller) issue(ctx context.Context, t *thing, credentials map[string]any) error {
	data := map[string]any{}
	for key, value := range credentials {
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
	t.Applied, t.State, t.Secret = "bound", "Created", &named{secret.GetName(), secret.GetNamespace()}
	return c.tell(ctx, t, "Available", "")
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
