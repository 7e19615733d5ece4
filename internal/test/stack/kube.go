// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Apply applies objects in their order as kubectl apply --server-side does, with
// the administrator's credential; for a kind whose CRD was just applied it waits.
func Apply(ctx context.Context, c *cluster.Cluster, objects ...*unstructured.Unstructured) error {
	dyn, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	mapper, err := newMapper(c)
	if err != nil {
		return err
	}
	for _, u := range objects {
		m, err := mapping(ctx, mapper, u)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		var ri dynamic.ResourceInterface = dyn.Resource(m.Resource)
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			if u.GetNamespace() == "" {
				u = u.DeepCopy()
				u.SetNamespace(metav1.NamespaceDefault)
			}
			ri = dyn.Resource(m.Resource).Namespace(u.GetNamespace())
		}
		if _, err := ri.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "stack", Force: true}); err != nil {
			return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

func newMapper(c *cluster.Cluster) (*restmapper.DeferredDiscoveryRESTMapper, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)), nil
}

// awaitKind waits until kubectl finds a kind of ours.
func awaitKind(ctx context.Context, c *cluster.Cluster, kind string) error {
	mapper, err := newMapper(c)
	if err == nil {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		_, err = mapping(ctx, mapper, u)
	}
	return err
}

// mapping waits until the kind of u is served.
func mapping(ctx context.Context, mapper *restmapper.DeferredDiscoveryRESTMapper, u *unstructured.Unstructured) (m *meta.RESTMapping, err error) {
	gvk := u.GroupVersionKind()
	waitErr := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		if m, err = mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			mapper.Reset()
		}
		return err == nil, nil
	})
	return m, errors.Join(waitErr, err)
}

// Account writes a kubeconfig with a token of the service account, for a program
// that runs outside the cluster with just the account's rights, and returns its path.
func Account(ctx context.Context, c *cluster.Cluster, dir, namespace, name string) (path string, err error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return "", err
	}
	day := int64((24 * time.Hour).Seconds())
	tr, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of %s/%s: %w", namespace, name, err)
	}
	ca, err := caData(c.Config())
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, fmt.Sprintf("%s-%s.kubeconfig", c.Name(), name))
	return path, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"default": {Server: c.URL(), CertificateAuthorityData: ca, TLSServerName: c.Config().ServerName}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default": {Token: tr.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"default": {Cluster: "default", AuthInfo: "default", Namespace: namespace}},
		CurrentContext: "default",
	}, path)
}

func caData(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	return os.ReadFile(config.CAFile)
}
