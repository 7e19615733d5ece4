// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// name is that of the one cluster, user and context.
const name = "default"

// Write returns k as a kubeconfig in YAML: one cluster, one user and one context,
// each called "default".
func (k *Kubeconfig) Write() ([]byte, error) {
	data, err := yaml.Marshal(clientcmdv1.Config{
		APIVersion: "v1",
		Kind:       "Config",
		Clusters: []clientcmdv1.NamedCluster{{Name: name, Cluster: clientcmdv1.Cluster{
			Server: k.Server, TLSServerName: k.TLSServerName, CertificateAuthorityData: k.CAData,
		}}},
		AuthInfos:      []clientcmdv1.NamedAuthInfo{{Name: name, AuthInfo: clientcmdv1.AuthInfo{Token: k.Token}}},
		Contexts:       []clientcmdv1.NamedContext{{Name: name, Context: clientcmdv1.Context{Cluster: name, AuthInfo: name, Namespace: k.Namespace}}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return data, nil
}
