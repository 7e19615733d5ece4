// SPDX-License-Identifier: Apache-2.0

// Package expiring caches answers for a limited time. Most of what the backend asks for it
// watches; rights, and the catalogues of embedding programs, have no events, so each answer
// is kept until its time is over. Errors are never kept.
package expiring

import (
	"maps"
	"sync"
	"time"
)

// A Cache remembers answers by key until they expire or are forgotten. Of many callers
// that ask for the same key at once one finds out. Errors are not remembered, nor is an
// answer that was forgotten while it was found out. The zero value works.
type Cache[V any] struct {
	mu      sync.Mutex
	entries map[string]entry[V]
}

type entry[V any] struct {
	until  time.Time
	answer func() (V, error)
}

// Get returns the answer for key, which find has found or finds; until is how long a
// new one is good.
func (c *Cache[V]) Get(key string, until time.Time, find func() (V, error)) (V, error) {
	v, err := c.at(key, until, find).answer()
	if err != nil {
		c.Forget(key)
	}
	return v, err
}

func (c *Cache[V]) at(key string, until time.Time, find func() (V, error)) entry[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.entries[key]
	if !time.Now().Before(found.until) {
		found = entry[V]{until, sync.OnceValues(find)}
		if c.entries == nil {
			c.entries = map[string]entry[V]{}
		}
		c.entries[key] = found
	}
	return found
}

// Until is how long the answer for key is good; it is in the past if there is none.
func (c *Cache[V]) Until(key string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key].until
}

// Forget has the answer for key found out anew.
func (c *Cache[V]) Forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}

// ForgetAll forgets the answers for all keys that match.
func (c *Cache[V]) ForgetAll(match func(key string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.entries, func(key string, _ entry[V]) bool { return match(key) })
}
