// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

// TestMain skips the example in short mode, which it cannot do itself.
func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		_ = flag.Set("test.skip", "^ExampleStart$")
	}
	os.Exit(m.Run())
}

func ExampleStart() {
	ctx := context.Background()
	c, err := cluster.Start(ctx, cluster.Options{Name: "app", Log: os.Stderr})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Stop() }()

	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	version, err := client.Discovery().ServerVersion()
	fmt.Println(version, err)
	// Output: v1.36.3 <nil>
}

// TestCluster takes one cluster through its life.
func TestCluster(t *testing.T) {
	c := cluster.ForTest(t, "life")
	client := clientOf(t, c)
	url := c.URL()

	t.Run("terminates namespaces", func(t *testing.T) {
		makeNamespace(t, client, "short-lived", nil)
		makeConfigMap(t, client, "short-lived")
		if err := client.CoreV1().Namespaces().Delete(t.Context(), "short-lived", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Namespaces().Get(ctx, "short-lived", metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	})

	t.Run("makes and judges pods", func(t *testing.T) {
		makeNamespace(t, client, "restricted", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
		makeDeployment(t, client, "restricted")
		makeNamespace(t, client, "free", nil)
		makeDeployment(t, client, "free")
		eventually(t, "a pod is made where it may be", func(ctx context.Context) (bool, error) {
			pods, err := client.CoreV1().Pods("free").List(ctx, metav1.ListOptions{})
			return err == nil && len(pods.Items) == 1, err
		})
		eventually(t, "a pod is refused where it may not be", func(ctx context.Context) (bool, error) {
			d, err := client.AppsV1().Deployments("restricted").Get(ctx, "idle", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, cond := range d.Status.Conditions {
				if cond.Type == appsv1.DeploymentReplicaFailure && strings.Contains(cond.Message, "PodSecurity") {
					return true, nil
				}
			}
			return false, nil
		})
	})

	t.Run("exists for others", func(t *testing.T) { testExisting(t, c) })

	makeConfigMap(t, client, metav1.NamespaceDefault)
	uid := uidOf(t, client)

	t.Run("stops and starts its server", func(t *testing.T) {
		if err := c.StopServer(); err != nil {
			t.Fatal(err)
		}
		if err := c.Check(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("check of a stopped server: %v, want connection refused", err)
		}
		if err := c.StartServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantConfigMap(t, client, true)
	})

	t.Run("restarts with its data", func(t *testing.T) {
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantConfigMap(t, client, true)
		if got := uidOf(t, client); got != uid {
			t.Errorf("another kube-system after Restart: %s, was %s", got, uid)
		}
	})

	t.Run("restarts empty", func(t *testing.T) {
		if err := c.RestartEmpty(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantConfigMap(t, client, false)
		if got := uidOf(t, client); got == uid {
			t.Errorf("the same kube-system after RestartEmpty: %s", got)
		}
		if c.URL() != url {
			t.Errorf("moved from %s to %s", url, c.URL())
		}
	})

	t.Run("stops", func(t *testing.T) {
		dir := filepath.Dir(c.Kubeconfig())
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if err := c.Check(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("check of a stopped cluster: %v, want connection refused", err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("temporary directory %s: %v, want it gone", dir, err)
		}
	})
}

func TestDirOutlivesCluster(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	opts := cluster.Options{Name: "kept", Dir: tempdir.ForTest(t, "cluster"), NoControllers: true, Log: os.Stderr}
	for _, again := range []bool{false, true} {
		c, err := cluster.Start(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		client := clientOf(t, c)
		if !again {
			makeConfigMap(t, client, metav1.NamespaceDefault)
		}
		wantConfigMap(t, client, true)
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}
	if logs, err := filepath.Glob(filepath.Join(opts.Dir, "logs", "*.log")); err != nil || len(logs) != 2 {
		t.Errorf("logs are %q, %v; want those of etcd and kube-apiserver", logs, err)
	}
}

func TestStartIsCancelled(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	reason := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	c, err := cluster.Start(ctx, cluster.Options{Dir: tempdir.ForTest(t, "cluster")})
	if !errors.Is(err, reason) {
		t.Errorf("got %v, %v; want error %q", c, err, reason)
	}
}

func clientOf(t *testing.T, c *cluster.Cluster) kubernetes.Interface {
	t.Helper()
	config := c.Config()
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real cluster")
	}
}

func eventually(t *testing.T, what string, check wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, check); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func uidOf(t *testing.T, client kubernetes.Interface) types.UID {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.UID
}

func makeNamespace(t *testing.T, client kubernetes.Interface, name string, labels map[string]string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func makeConfigMap(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func wantConfigMap(t *testing.T, client kubernetes.Interface, want bool) {
	t.Helper()
	_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "kept", metav1.GetOptions{})
	if got := err == nil; got != want || (err != nil && !apierrors.IsNotFound(err)) {
		t.Errorf("config map is there: %t, %v; want %t", got, err, want)
	}
}

func makeDeployment(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	labels := map[string]string{"app": "idle"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "idle"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "idle", Image: "idle"}}},
			},
		},
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
