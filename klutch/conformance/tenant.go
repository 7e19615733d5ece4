// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func tenantChecks() []check {
	return []check{
		{"its namespace", "WIRE 11.8", checkNamespace},
		{"its ClusterBinding", "WIRE 1.6", checkClusterBinding},
		{"its credential is where konnectors look", "WIRE 2.4, 2.5", checkSecret},
		{"its token dies by itself", "P13", checkToken},
		{"same person and cluster, same tenant", "P14", checkSameTenant},
		{"heartbeat", "WIRE 1.6, 11.11", checkHeartbeat},
	}
}

func (s *suite) newTenant(ctx context.Context, login Login, cluster string) (*tenant, error) {
	response, err := s.bind(ctx, login, cluster)
	if err != nil {
		return nil, err
	}
	access, err := kubeconfig.Read(response.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("WIRE 2.5: the kubeconfig of the response: %w", err)
	}
	t := &tenant{response: response, access: access, namespace: access.Namespace}
	config := access.RESTConfig()
	config.QPS = -1
	var errs [2]error
	t.kube, errs[0] = kubernetes.NewForConfig(config)
	t.dyn, errs[1] = dynamic.NewForConfig(config)
	t.export = sync.OnceValues(func() (*v1alpha1.APIServiceExport, error) { return s.exported(ctx, t) })
	t.mirror = sync.OnceValues(func() (string, error) { return s.mirrored(ctx, t, "conformance") })
	return t, errors.Join(errs[:]...)
}

func checkNamespace(c checker) {
	t := c.tenant(c.one)
	ns, err := t.kube.CoreV1().Namespaces().Get(c.Context(), t.namespace, metav1.GetOptions{})
	if err != nil || ns.UID == "" {
		c.violated("a konnector cannot know its tenant namespace by UID: %v", err)
	}
}

func checkClusterBinding(c checker) {
	t := c.tenant(c.one)
	got, err := read[v1alpha1.ClusterBinding](c.Context(), t, "clusterbindings", v1alpha1.ClusterBindingName)
	c.must("the ClusterBinding named cluster", err)
	if ref := got.Spec.KubeconfigSecretRef; ref.Name == "" || ref.Key != v1alpha1.KubeconfigKey {
		c.violated("kubeconfigSecretRef is %+v", ref)
	}
	if got.Spec.ProviderPrettyName == "" {
		c.violated("providerPrettyName is empty")
	}
}

func checkSecret(c checker) {
	t := c.tenant(c.one)
	binding, err := read[v1alpha1.ClusterBinding](c.Context(), t, "clusterbindings", v1alpha1.ClusterBindingName)
	c.must("the ClusterBinding named cluster", err)
	name := binding.Spec.KubeconfigSecretRef.Name
	secret, err := t.kube.CoreV1().Secrets(t.namespace).Get(c.Context(), name, metav1.GetOptions{})
	c.must("read Secret "+name, err)
	got, err := kubeconfig.Read(secret.Data[v1alpha1.KubeconfigKey])
	c.must("its kubeconfig", err)
	if got.Namespace != t.namespace || got.Server != t.access.Server || got.Token == "" {
		c.violated("Secret %s leads to %s, namespace %s; the response to %s, namespace %s", name, got.Server, got.Namespace, t.access.Server, t.namespace)
	}
	if secret.Type != "Opaque" {
		c.violated("Secret %s is of type %s", name, secret.Type)
	}
}

// checkToken reads the claims of a service account's token, as anyone can.
func checkToken(c checker) {
	t := c.tenant(c.one)
	parts := strings.Split(t.access.Token, ".")
	if len(parts) != 3 {
		c.Fatalf("%s: the token is not a JWT, so that a client cannot tell when it ends", c.basis)
	}
	var claims struct {
		Expiry     int64 `json:"exp"`
		Kubernetes struct {
			Secret *struct{ Name string } `json:"secret"`
		} `json:"kubernetes.io"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	c.must("the token's payload", errors.Join(err, json.Unmarshal(payload, &claims)))
	left := time.Until(time.Unix(claims.Expiry, 0))
	if claims.Expiry == 0 || left > time.Hour+time.Minute {
		c.violated("the token is good for %s, more than an hour", left.Round(time.Second))
	}
	if claims.Kubernetes.Secret == nil {
		c.violated("the token is bound to no Secret, so that it cannot be revoked")
	}
}

func checkSameTenant(c checker) {
	t := c.tenant(c.one)
	again, err := c.bind(c.Context(), c.Login, "conformance-1")
	c.must("log in again", err)
	access, err := kubeconfig.Read(again.Kubeconfig)
	c.must("its kubeconfig", err)
	if access.Namespace != t.namespace {
		c.violated("a second login leads to %s, the first to %s", access.Namespace, t.namespace)
	}
}

func checkHeartbeat(c checker) {
	t := c.tenant(c.one)
	beat, err := json.Marshal(map[string]any{"status": map[string]any{
		"lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339), "heartbeatInterval": "5m0s", "konnectorVersion": "v1.0.0", "clusterUID": "conformance-1",
	}})
	c.must("encode", err)
	_, err = t.ours("clusterbindings").Patch(c.Context(), v1alpha1.ClusterBindingName, types.MergePatchType, beat, metav1.PatchOptions{}, "status")
	c.must("a konnector says that it is there", err)
	var got *v1alpha1.ClusterBinding
	if !c.eventually(c.Context(), func(ctx context.Context) bool {
		got, err = read[v1alpha1.ClusterBinding](ctx, t, "clusterbindings", v1alpha1.ClusterBindingName)
		return err == nil && v1alpha1.IsTrue(got.Status.Conditions, v1alpha1.ConditionHealthy)
	}) {
		c.violated("condition %s is not true after a heartbeat: %v %v", v1alpha1.ConditionHealthy, got, err)
	}
}

// mirrored asks for a service namespace and returns its name.
func (s *suite) mirrored(ctx context.Context, t *tenant, name string) (string, error) {
	const resource = "apiservicenamespaces"
	asked := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceNamespace", "metadata": map[string]any{"name": name},
	}}
	s.later(func() { _ = t.ours(resource).Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) })
	if _, err := t.ours(resource).Create(ctx, asked, metav1.CreateOptions{FieldManager: "conformance"}); !fates.Is(err, fates.None, fates.Exists) {
		return "", fmt.Errorf("ask for a service namespace: %w", err)
	}
	got := ""
	if !s.eventually(ctx, func(ctx context.Context) bool {
		o, err := read[v1alpha1.APIServiceNamespace](ctx, t, resource, name)
		if err == nil {
			got = o.Status.Namespace
		}
		return got != ""
	}) {
		return "", fmt.Errorf("WIRE 1.7: APIServiceNamespace %s has no status.namespace after %s", name, s.Patience)
	}
	return got, nil
}
