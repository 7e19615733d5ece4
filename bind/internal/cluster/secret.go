// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/base64"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// errCopy refuses a kubeconfig that a konnector copied here.
var errCopy = errors.New("it is a copy of what a platform handed out, and not what kubectl bind or an owner of this cluster wrote; delete that Secret first")

// ReadSecret reads the kubeconfig of a Secret. That of a copy would have one platform
// decide where the bindings to another one lead.
func ReadSecret(u *unstructured.Unstructured) (*kubeconfig.Kubeconfig, error) {
	if IsCopy(u) {
		return nil, errCopy
	}
	encoded, ok, err := unstructured.NestedString(u.Object, "data", v1alpha1.KubeconfigKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("key %q is missing", v1alpha1.KubeconfigKey)
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("key %q is not base64", v1alpha1.KubeconfigKey)
	}
	return kubeconfig.Read(data)
}

// Backend is the URL at which a login got the kubeconfig of a Secret, whether that can be read or
// not; empty where it does not say so, and for a copy, which says what its platform wants.
func Backend(u *unstructured.Unstructured) string {
	if IsCopy(u) {
		return ""
	}
	return u.GetAnnotations()[v1alpha1.BackendAnnotation]
}

// ForeignCRD is what a person does about a CRD that is in the way of a binding, which has its name.
func ForeignCRD(name string) string {
	return fmt.Sprintf("If nothing uses it: kubectl delete crd %[1]s. Or give the binding up: kubectl bind unbind %[1]s", name)
}

// Repair is what a person does about a Secret without a kubeconfig that can be read, or about one
// that is not there, which is nil.
func Repair(u *unstructured.Unstructured) string {
	const run = "kubectl bind repair URL, with the URL of the platform"
	switch {
	case u == nil:
		return "Run " + run
	case Backend(u) == "": // for all that is known another person wrote it
		return "Delete that Secret, then run " + run
	default:
		return "Run kubectl bind repair"
	}
}

// LeadsTo tells whether a Secret leads to the server and namespace of k.
func LeadsTo(u *unstructured.Unstructured, k *kubeconfig.Kubeconfig) bool {
	other, err := ReadSecret(u)
	return err == nil && other.Server == k.Server && other.Namespace == k.Namespace
}
