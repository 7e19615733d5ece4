// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// clusterInfo returns what the ConfigMap cluster-info of kube-public tells everybody
// about the API server, as kubeadm makes it, or nil if there is none that the
// backend may read.
func (c *credentials) clusterInfo(ctx context.Context) (*kubeconfig.Kubeconfig, error) {
	info, err := c.Kube.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, "cluster-info", metav1.GetOptions{})
	if fates.Is(err, fates.Absent, fates.Forbidden) {
		return nil, nil //nolint:nilnil // it is an offer
	}
	if err != nil {
		return nil, fmt.Errorf("read cluster-info: %w", err)
	}
	return parseClusterInfo(info.Data["kubeconfig"])
}

// parseClusterInfo takes the one cluster of a kubeconfig: its URL, and whom to trust.
func parseClusterInfo(text string) (*kubeconfig.Kubeconfig, error) {
	var config clientcmdv1.Config
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return nil, fmt.Errorf("read cluster-info: %w", err)
	}
	if len(config.Clusters) != 1 {
		return nil, fmt.Errorf("cluster-info names %d clusters, not one", len(config.Clusters))
	}
	c := config.Clusters[0].Cluster
	if u, err := url.Parse(c.Server); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server of cluster-info is %q, not an https URL", c.Server)
	}
	return &kubeconfig.Kubeconfig{Server: c.Server, CAData: c.CertificateAuthorityData, TLSServerName: c.TLSServerName}, nil
}

// firstOf returns the first that is not empty.
func firstOf(all ...[]byte) []byte {
	for _, data := range all {
		if len(data) > 0 {
			return data
		}
	}
	return nil
}
