// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"net/netip"
	"sync"

	"github.com/klutch-go/sdk/internal/limit"
)

// Limits are how many connections may be open: each costs some 40 KB, whether it asks
// for anything or not. Zero or less means any number.
type Limits struct {
	// All together.
	All int
	// PerAddress, and eight times as many per network, see [limit.Network].
	PerAddress int
	// Free are the networks of gateways, of which PerAddress does not count: all that
	// they connect for have their address.
	Free []netip.Prefix
}

// Limited returns a listener that closes the connections that are beyond the limits as
// soon as they come.
func Limited(ln net.Listener, limits Limits) net.Listener {
	return &limited{Listener: ln, limits: limits, open: map[string]int{}}
}

const perNetwork = 8

type limited struct {
	net.Listener

	limits Limits

	mu   sync.Mutex
	open map[string]int // connections, by address and by network; "" has all
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		keys := l.keys(conn)
		if l.take(keys) {
			return &counted{Conn: conn, done: sync.OnceFunc(func() { l.give(keys) })}, nil
		}
		_ = conn.Close()
	}
}

// keys are under what a connection counts, and how many of each there may be.
func (l *limited) keys(conn net.Conn) map[string]int {
	keys := map[string]int{"": l.limits.All}
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || l.limits.PerAddress <= 0 {
		return keys
	}
	addr := from.Addr().Unmap()
	for _, free := range l.limits.Free {
		if free.Contains(addr) {
			return keys
		}
	}
	keys[limit.Address(addr)] = l.limits.PerAddress
	if network := limit.Network(addr); network != "" {
		keys[network] = perNetwork * l.limits.PerAddress
	}
	return keys
}

func (l *limited) take(keys map[string]int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, most := range keys {
		if most > 0 && l.open[key] >= most {
			return false
		}
	}
	for key := range keys {
		l.open[key]++
	}
	return true
}

func (l *limited) give(keys map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range keys {
		if l.open[key]--; l.open[key] <= 0 {
			delete(l.open, key)
		}
	}
}

// A counted connection counts until it is closed.
type counted struct {
	net.Conn

	done func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	defer c.done()
	return c.Conn.Close()
}
