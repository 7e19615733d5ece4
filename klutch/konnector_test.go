// SPDX-License-Identifier: Apache-2.0

//go:build unix

package klutch_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatal(last)
	}
}

// account makes the konnector's service account, without any rights yet.
func account(t *testing.T, c *cluster.Cluster, kube kubernetes.Interface) *rest.Config {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "konnector", Namespace: v1alpha1.Namespace}
	_, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().ServiceAccounts(meta.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := kube.CoreV1().ServiceAccounts(meta.Namespace).CreateToken(t.Context(), meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = token.Status.Token
	return config
}

// grant creates the shipped roles.
func grant(t *testing.T, kube kubernetes.Interface) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "deploy", "konnector", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rbac, options := kube.RbacV1(), metav1.CreateOptions{}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Role":
			_, err = rbac.Roles(v1alpha1.Namespace).Create(t.Context(), decode[rbacv1.Role](t, doc), options)
		case "RoleBinding":
			_, err = rbac.RoleBindings(v1alpha1.Namespace).Create(t.Context(), decode[rbacv1.RoleBinding](t, doc), options)
		case "ClusterRole":
			_, err = rbac.ClusterRoles().Create(t.Context(), decode[rbacv1.ClusterRole](t, doc), options)
		case "ClusterRoleBinding":
			_, err = rbac.ClusterRoleBindings().Create(t.Context(), decode[rbacv1.ClusterRoleBinding](t, doc), options)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func decode[T any](t *testing.T, doc string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.Unmarshal([]byte(doc), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := cluster.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Two replicas start without any right, begin to work once they have the shipped
// ones, and the second takes over from the first.
func TestKonnectorReplicas(t *testing.T) {
	c := cluster.ForTest(t, "app")
	kube, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	config := account(t, c, kube)
	var wg sync.WaitGroup
	defer wg.Wait()
	stop, healthy := map[string]context.CancelFunc{}, map[string]string{}
	for _, identity := range []string{"a", "b"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		k := klutch.Konnector{Config: config, Identity: identity, HealthAddress: freeAddress(t)}
		stop[identity], healthy[identity] = cancel, k.HealthAddress
		wg.Go(func() {
			if err := k.Run(ctx); err != nil {
				t.Errorf("%s: %v", identity, err)
			}
		})
	}
	for identity, address := range healthy {
		for _, path := range []string{"/livez", "/readyz", "/healthz"} {
			eventually(t, func() error { return check(t, "http://"+address+path) })
		}
		t.Logf("%s is healthy", identity)
	}
	grant(t, kube)
	eventually(t, func() error {
		_, err := discovery.NewDiscoveryClientForConfigOrDie(c.Config()).ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		return err
	})
	first := holder(t, kube, "")
	stop[first]()
	if second := holder(t, kube, first); second == first {
		t.Errorf("holder is still %s", second)
	}
}

func check(t *testing.T, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

// holder waits until another replica than before holds the lease.
func holder(t *testing.T, kube kubernetes.Interface, before string) (now string) {
	t.Helper()
	eventually(t, func() error {
		l, err := kube.CoordinationV1().Leases(v1alpha1.Namespace).Get(t.Context(), v1alpha1.LeaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || *l.Spec.HolderIdentity == before {
			return errors.New("no other replica has taken the lease")
		}
		now = *l.Spec.HolderIdentity
		return nil
	})
	return now
}

func TestKonnectorRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // a test
	for name, k := range map[string]klutch.Konnector{
		"no config":     {},
		"address taken": {Config: &rest.Config{Host: "https://127.0.0.1:1"}, HealthAddress: taken.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			if err := k.Run(t.Context()); err == nil {
				t.Error("it has run")
			}
		})
	}
}
