// SPDX-License-Identifier: Apache-2.0

// Package limit bounds how often a client may ask, in bounded memory.
package limit

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxKeys bounds the memory of a Limiter to a few megabytes. Beyond it the key that
// has been silent for longest is forgotten, which only gives it its burst back.
const maxKeys = 1 << 14

// A Limiter is a token bucket for each key: n at once, then n a minute. It may be
// used by many goroutines. A nil Limiter lets everything through.
type Limiter struct {
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	buckets map[string]*list.Element // of *bucket
	recent  *list.List               // the last used is in front
}

type bucket struct {
	key string
	*rate.Limiter
}

// PerMinute returns a Limiter of n a minute for each key; nil if n is not positive.
func PerMinute(n int) *Limiter {
	if n <= 0 {
		return nil
	}
	return &Limiter{rate: rate.Limit(float64(n) / time.Minute.Seconds()), burst: n, buckets: map[string]*list.Element{}, recent: list.New()}
}

// Take takes one for key. It returns 0, or how long to wait before there is one
// again; then nothing was taken.
func (l *Limiter) Take(key string) time.Duration { return l.TakeN(key, 1) }

// TakeN takes as many for key, or all that there can be at once if n is more.
func (l *Limiter) TakeN(key string, n int) time.Duration {
	if l == nil {
		return 0
	}
	reservation := l.bucket(key).ReserveN(time.Now(), min(n, l.burst))
	delay := reservation.Delay()
	if delay > 0 {
		reservation.Cancel()
	}
	return delay
}

func (l *Limiter) bucket(key string) *bucket {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.buckets[key]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket) //nolint:forcetypeassert // nothing else is put in
	}
	if l.recent.Len() >= maxKeys {
		oldest := l.recent.Remove(l.recent.Back()).(*bucket) //nolint:forcetypeassert // nothing else is put in
		delete(l.buckets, oldest.key)
	}
	b := &bucket{key, rate.NewLimiter(l.rate, l.burst)}
	l.buckets[key] = l.recent.PushFront(b)
	return b
}

// Address is the key of an address: of IPv6 the /64, which is what one subscriber
// has at least.
func Address(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}

// Network is the key of the network that an address is in, of which one subscriber may
// have all: of IPv6 the /48. It is empty for IPv4, of which each address counts.
func Network(addr netip.Addr) string {
	if addr = addr.Unmap().WithZone(""); !addr.Is6() {
		return ""
	}
	return netip.PrefixFrom(addr, 48).Masked().String()
}
