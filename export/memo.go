// SPDX-License-Identifier: Apache-2.0

package export

import (
	"maps"
	"sync"
	"time"
)

// A memo remembers answers until they are too old, or forgotten. Of many that ask for
// the same at once, one finds out. Errors are not remembered, nor is an answer that
// was forgotten while it was found out.
type memo[V any] struct {
	mu    sync.Mutex
	known map[string]remembered[V]
}

type remembered[V any] struct {
	until  time.Time
	answer func() (V, error)
}

// get returns the answer for key, which find has found or finds; until is how long a
// new one is good.
func (m *memo[V]) get(key string, until time.Time, find func() (V, error)) (V, error) {
	v, err := m.at(key, until, find).answer()
	if err != nil {
		m.forget(key)
	}
	return v, err
}

func (m *memo[V]) at(key string, until time.Time, find func() (V, error)) remembered[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.known[key]
	if !time.Now().Before(found.until) {
		found = remembered[V]{until, sync.OnceValues(find)}
		if m.known == nil {
			m.known = map[string]remembered[V]{}
		}
		m.known[key] = found
	}
	return found
}

// until is how long the answer for key is good; it is in the past if there is none.
func (m *memo[V]) until(key string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[key].until
}

func (m *memo[V]) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}

// forgetAll forgets the answers for all keys of that kind.
func (m *memo[V]) forgetAll(kind func(key string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.known, func(key string, _ remembered[V]) bool { return kind(key) })
}
