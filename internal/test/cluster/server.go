// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	host         = "127.0.0.1"
	startTimeout = 5 * time.Minute // on a machine that is busy with other tests
	startTries   = 5               // of servers that end by themselves before they are ready
	pollInterval = 25 * time.Millisecond
	checkTimeout = 3 * time.Second // a server that will never answer may hold a connection open

	etcdSocket = "etcd:0" // a file in the working directory of the servers, named as etcd wants it
)

var (
	errEnded     = errors.New("a server ended by itself")
	errPortTaken = errors.New("another process has taken the port")
)

// servers are the processes of a cluster that we run.
type servers struct {
	bin, dir    string
	remove      func() error // removes dir; nil if it outlives the cluster
	port        int
	controllers bool
	starts      int
	told        io.Writer // of servers that ended at their start; may be nil

	etcd, apiServer, controllerManager *process // nil while it is stopped
}

// start starts what does not run and waits until client can use all of it. An API server that etcd answers too late ends
// by itself: it is started again, and its last words are told.
func (s *servers) start(ctx context.Context, client kubernetes.Interface) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 1; ; try++ {
		err = s.startOnce(ctx, client)
		if try == startTries || !errors.Is(err, errEnded) || errors.Is(err, errPortTaken) {
			return err
		}
		_, _ = fmt.Fprintf(orDiscard(s.told), "start %d of %d in %s: %v\n", try, startTries, s.dir, err)
		s.stop()
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pollInterval << try):
		}
	}
}

func (s *servers) startOnce(ctx context.Context, client kubernetes.Interface) (err error) {
	if s.etcd == nil {
		if s.etcd, err = run(ctx, s.bin, s.dir, etcdArgs()); err != nil {
			return err
		}
	}
	if s.apiServer, err = run(ctx, s.bin, s.dir, apiServerArgs(s.port)); err != nil {
		return err
	}
	if err := s.await(ctx, func(ctx context.Context) error { return ready(ctx, client) }); err != nil {
		return err
	}
	if !s.controllers {
		return nil
	}
	return s.startControllers(ctx, client)
}

// startControllers proves that the controllers work by what they do: a service account that is not there now will be.
func (s *servers) startControllers(ctx context.Context, client kubernetes.Interface) (err error) {
	const proof = "default"
	accounts := client.CoreV1().ServiceAccounts(metav1.NamespacePublic)
	if err := accounts.Delete(ctx, proof, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete a service account: %w", err)
	}
	if s.controllerManager, err = run(ctx, s.bin, s.dir, controllerManagerArgs()); err != nil {
		return err
	}
	return s.await(ctx, func(ctx context.Context) error {
		_, err := accounts.Get(ctx, proof, metav1.GetOptions{})
		return err
	})
}

// await calls check until it succeeds, a server ends, or ctx is done.
func (s *servers) await(ctx context.Context, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		if last = check(ctx); last == nil {
			return true, nil
		}
		return false, s.ended()
	})
	if wait.Interrupted(err) {
		return errors.Join(context.Cause(ctx), last)
	}
	return err
}

// ended reports a server that should run and does not.
func (s *servers) ended() error {
	for _, p := range []*process{s.etcd, s.apiServer, s.controllerManager} {
		if p == nil {
			continue
		}
		if err := p.ended(); err != nil {
			if p.said("address already in use") {
				return fmt.Errorf("%w: %w: %w", errEnded, errPortTaken, err)
			}
			return fmt.Errorf("%w: %w", errEnded, err)
		}
	}
	return nil
}

func (s *servers) stop() {
	s.stopServer()
	s.etcd.kill()
	s.etcd = nil
}

// stopServer ends the controllers too: they would return to a new API server only after a back-off of their own.
func (s *servers) stopServer() {
	s.controllerManager.kill()
	s.apiServer.kill()
	s.controllerManager, s.apiServer = nil, nil
}

// ready asks the API server whether it is ready and has the namespaces that every cluster has.
func ready(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// FreeAddress returns a loopback address that no program listens on, and that stays free for longer than one with port 0 would:
// see freePort.
func FreeAddress(ctx context.Context) (string, error) {
	port, err := freePort(ctx)
	return net.JoinHostPort(host, strconv.Itoa(port)), err
}

// freePort returns a port that no program listens on, below those that the system gives to outgoing connections and to
// a program that listens on any port: one of these could take it while the API server is stopped.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	var last error
	for range 100 {
		port := 20000 + rand.IntN(10000)
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

func etcdArgs() []string {
	const client, peer = "unix://" + etcdSocket, "unix://peer:0"
	return []string{
		"etcd",
		"--data-dir", dataDir,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
		"--unsafe-no-fsync",
		"--log-level", "warn",
	}
}

func apiServerArgs(port int) []string {
	return []string{
		"kube-apiserver",
		"--etcd-servers", "unix://" + etcdSocket,
		"--bind-address", host, "--advertise-address", host, "--secure-port", strconv.Itoa(port),
		"--tls-cert-file", certFile, "--tls-private-key-file", keyFile,
		"--authorization-mode", "RBAC",
		"--token-auth-file", tokensFile,
		"--anonymous-auth", // for probes
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-signing-key-file", accountFile, "--service-account-key-file", accountFile,
		"--service-cluster-ip-range", "10.0.0.0/24",
		"--endpoint-reconciler-type", "none",
		"--allow-privileged",
		"--max-requests-inflight", "2000", "--max-mutating-requests-inflight", "1000",
	}
}

func controllerManagerArgs() []string {
	return []string{
		"kube-controller-manager",
		"--kubeconfig", kubeconfigFile,
		"--kube-api-qps", "500", "--kube-api-burst", "1000",
		"--secure-port", "0",
		"--root-ca-file", certFile,
		"--service-account-private-key-file", accountFile,
		"--leader-elect=false",
		"--controllers", "*,-node-ipam-controller,-node-lifecycle-controller",
	}
}
