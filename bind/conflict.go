// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/mark"
)

// ErrConflict says that a name is already taken by someone else's object.
var ErrConflict = errors.New("belongs to someone else")

// look reads the App Cluster and fails on what Install would fail on later.
func (i *installer) look(ctx context.Context) (err error) {
	if i.app, err = openApp(ctx, i.config); err != nil {
		return err
	}
	for _, service := range i.services {
		if err := i.lookForBinding(ctx, service.String()); err != nil {
			return err
		}
	}
	return i.chooseSecret(ctx)
}

// lookForBinding also refuses a CRD that no binding made: the konnector would.
func (i *installer) lookForBinding(ctx context.Context, name string) error {
	b, err := i.app.binding(ctx, name)
	if err != nil {
		return err
	}
	if b != nil {
		i.existing[name] = b
		return nil
	}
	crd, err := readCRD(ctx, i.app, name)
	if err != nil {
		return err
	}
	if crd != nil && !ours(crd) {
		return fmt.Errorf("the CRD %s is in the App Cluster already and no binding made it: %w", name, ErrConflict)
	}
	return nil
}

// ours tells a CRD that a binding made from any other.
func ours(crd *apiextensionsv1.CustomResourceDefinition) bool {
	_, marked := mark.Get(crd)
	return marked || slices.ContainsFunc(crd.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "APIServiceBinding" })
}
