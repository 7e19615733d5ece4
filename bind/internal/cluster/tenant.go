// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// TenantClient returns a client of the tenant that k leads to.
func TenantClient(k *kubeconfig.Kubeconfig) (dynamic.Interface, error) {
	config := k.RESTConfig()
	config.UserAgent, config.Timeout = FieldManager, CallTimeout
	return dynamic.NewForConfig(config)
}

// FieldManager of everything that Install writes.
const FieldManager = "kubectl-bind"
