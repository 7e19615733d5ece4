// SPDX-License-Identifier: Apache-2.0

// Package cluster runs real Kubernetes clusters for tests and the quickstart, as plain processes, without containers.
//
// A [Cluster] is etcd, kube-apiserver and kube-controller-manager, ready for use about four seconds after [Start]. There
// are no nodes, so no pod ever runs, but everything else is real: namespaces terminate, garbage is collected, service
// accounts get tokens, Deployments make Pods that admission judges.
//
//	func TestSomething(t *testing.T) {
//		app := cluster.ForTest(t, "app")
//		client := kubernetes.NewForConfigOrDie(app.Config())
//		…
//	}
//
// Tests of one process may pass their clusters on to each other, since a start costs two seconds of a CPU: [Reused] puts what
// a test has changed back in etcd, past the API server, which sees that as it sees another API server's writes.
//
// Outside a test the caller stops what it started:
//
//	app, err := cluster.From(ctx, cluster.AppEnv, cluster.Options{Name: "app", Log: os.Stderr})
//	if err != nil {
//		return err
//	}
//	defer app.Stop()
//
// From takes the cluster whose kubeconfig an environment variable names (kind, k3s, anything) and starts one only when it
// is not set. [Provider] does the same for e2e-framework.
//
// The three programs are one, internal/test/kube, which [Build] compiles when a machine first needs it. That takes minutes; the
// result stays in the user's cache directory until the sources or the Go version change.
//
// The processes end with the one that started them, however it ends. A Cluster's data outlives StopServer and Restart, not
// RestartEmpty, and outlives Stop if Options.Dir names a place for it. Methods that start or stop a Cluster must not be
// called at the same time; the others may.
package cluster
