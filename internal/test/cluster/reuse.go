// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	keptIdle     = 8 // clusters of a process, of half a gigabyte each
	resetTimeout = 30 * time.Second
	policyPeriod = time.Second // in which an API server looks at its admission policies
)

// A memory is what a cluster was when it was new.
type memory struct {
	entries map[string]entry
	groups  []byte // the API groups that it served
}

// idle are the clusters of this process that tests have done with. They end with the process.
var idle struct {
	sync.Mutex
	clusters []*Cluster
}

// remember keeps what the cluster is now, as the state that reset goes back to.
func (c *Cluster) remember(ctx context.Context) error {
	store := newEtcd(c.servers.dir)
	defer store.close()
	entries, err := store.list(ctx, false)
	if err != nil {
		return err
	}
	groups, err := c.groups(ctx)
	if err != nil {
		return err
	}
	c.began = &memory{entries, groups}
	return nil
}

// reusable tells whether the cluster has run since it was new, as it was started.
func (c *Cluster) reusable() bool {
	return c.began != nil && c.servers.starts == 1 && c.servers.controllerManager != nil && c.servers.ended() == nil
}

// leave keeps the cluster for another test of this process, unless there are enough.
func (c *Cluster) leave() bool {
	idle.Lock()
	defer idle.Unlock()
	if !c.reusable() || len(idle.clusters) >= keptIdle {
		return false
	}
	idle.clusters = append(idle.clusters, c)
	return true
}

// takeIdle returns the cluster that was left last, as good as new, or nil.
func takeIdle(ctx context.Context, name string) *Cluster {
	idle.Lock()
	var c *Cluster
	if n := len(idle.clusters); n > 0 {
		c, idle.clusters = idle.clusters[n-1], idle.clusters[:n-1]
	}
	idle.Unlock()
	if c == nil {
		return nil
	}
	if err := c.reset(ctx, name); err != nil {
		_ = c.Stop() // the caller starts another one
		return nil
	}
	return c
}

// reset takes the cluster back to what it was when it was new, under another name.
func (c *Cluster) reset(ctx context.Context, name string) (err error) {
	if !c.reusable() {
		return errors.New("the cluster has been stopped")
	}
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	store := newEtcd(c.servers.dir)
	defer store.close()
	removed, err := c.began.revert(ctx, store)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(removed, isPolicy) { // which no request shows to be out of force
		select {
		case <-time.After(2 * policyPeriod):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) { return c.clean(ctx, store, &removed) }); err != nil {
		return fmt.Errorf("reset cluster %q: %w", c.name, err)
	}
	c.name = name
	c.kubeconfig, err = writeKubeconfig(c.servers.dir, name, c.config.Host)
	return err
}

// revert puts back what has been changed or removed, and removes what has been added. It returns the keys of the latter.
func (m *memory) revert(ctx context.Context, store *etcd) (removed []string, err error) {
	now, err := store.list(ctx, true)
	if err != nil {
		return nil, err
	}
	for key, was := range m.entries {
		if now[key].Revision == was.Revision || restless(key) {
			continue
		}
		if was.Revision, err = store.put(ctx, was); err != nil {
			return nil, err
		}
		m.entries[key] = was
	}
	removed = m.added(now)
	return removed, store.remove(ctx, removed...)
}

// clean removes the keys that a test, or a controller that was late, has added, and reports whether there were none, and
// the API server serves no kind whose CRD was removed.
func (c *Cluster) clean(ctx context.Context, store *etcd, removed *[]string) (bool, error) {
	now, err := store.list(ctx, true)
	if err != nil {
		return false, err
	}
	added := c.began.added(now)
	if *removed = append(*removed, added...); len(added) > 0 {
		return false, store.remove(ctx, added...)
	}
	groups, err := c.groups(ctx)
	if err != nil || !bytes.Equal(groups, c.began.groups) {
		return false, err
	}
	client, err := c.client()
	if err != nil {
		return false, err
	}
	return unserved(ctx, client.Discovery().RESTClient(), *removed)
}

// unserved reports whether the API server has no kind of the CRDs among the keys. It learns of CRDs apart from the
// groups that it lists, and serves them until then.
func unserved(ctx context.Context, server rest.Interface, keys []string) (bool, error) {
	groups := map[string]bool{}
	for _, key := range keys {
		if _, group, _ := strings.Cut(path.Base(key), "."); isCRD(key) {
			groups[group] = true
		}
	}
	for group := range groups {
		if err := server.Get().AbsPath("/apis", group).Do(ctx).Error(); !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return true, nil
}

// added returns the keys that were not there in the beginning: those of CRDs last, after their objects'.
func (m *memory) added(now map[string]entry) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, was := m.entries[key]; !was && !restless(key) {
			keys = append(keys, key)
		}
	}
	slices.SortStableFunc(keys, func(a, b string) int {
		switch {
		case isCRD(a) == isCRD(b):
			return 0
		case isCRD(a):
			return 1
		}
		return -1
	})
	return keys
}

func isCRD(key string) bool { return strings.Contains(key, "/customresourcedefinitions/") }

func isPolicy(key string) bool { return strings.Contains(key, "admissionpolicies/") }

// restless are objects that the servers themselves make and change all the time.
func restless(key string) bool {
	for _, prefix := range []string{"leases/kube-system/", "masterleases/", "events/default/", "events/kube-system/"} {
		if strings.HasPrefix(key, firstKey+prefix) {
			return true
		}
	}
	namespace := strings.Split(strings.TrimPrefix(key, firstKey), "/")
	return len(namespace) == 3 && slices.Contains([]string{"default", "kube-node-lease", "kube-public", "kube-system"}, namespace[1]) &&
		slices.Contains([]string{"serviceaccounts/default", "configmaps/kube-root-ca.crt"}, namespace[0]+"/"+namespace[2])
}

// groups returns the names of the API groups that the cluster serves, as it says them.
func (c *Cluster) groups(ctx context.Context) ([]byte, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return client.Discovery().RESTClient().Get().AbsPath("/apis").SetHeader("Accept", "application/json").DoRaw(ctx)
}
