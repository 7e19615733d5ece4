// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/klutch-go/sdk/internal/limit"
)

// Limits are how many connections may be open: each costs some 40 KB, whether it asks
// for anything or not. Zero or less means any number.
type Limits struct {
	// All together.
	All int
	// PerAddress, and eight times as many per network, see [limit.Network].
	PerAddress int
	// Free are the networks of gateways, for which PerAddress does not count: all clients
	// of a gateway come from its address.
	Free []netip.Prefix
}

// Limited returns a listener that closes the connections that are beyond the limits as
// soon as they come. Where All is reached, a newcomer takes the place of the connection
// that is silent for longest of the address, or IPv6 network, that has most, if that has
// more than its own: a client that fills the listener does not keep others out.
func Limited(ln net.Listener, limits Limits) net.Listener {
	return &limited{Listener: ln, limits: limits, open: map[string]int{}, conns: map[*counted]bool{}}
}

const perNetwork = 8

type limited struct {
	net.Listener

	limits Limits
	clock  atomic.Int64 // counts reads and writes, over all connections

	mu    sync.Mutex
	open  map[string]int // connections, by address and by network; "" has all
	conns map[*counted]bool
}

// A bound says how many connections there may be under a key.
type bound struct {
	key  string
	most int
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &counted{Conn: conn, in: l, bounds: l.bounds(conn)}
		c.touch()
		victim, ok := l.take(c)
		if victim != nil {
			_ = victim.Conn.Close()
		}
		if ok {
			return c, nil
		}
		_ = conn.Close()
	}
}

// bounds are those of a connection, that of all connections last.
func (l *limited) bounds(conn net.Conn) []bound {
	all := bound{"", l.limits.All}
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || l.limits.PerAddress <= 0 {
		return []bound{all}
	}
	addr := from.Addr().Unmap()
	for _, free := range l.limits.Free {
		if free.Contains(addr) {
			return []bound{all}
		}
	}
	own := bound{limit.Address(addr), l.limits.PerAddress}
	if network := limit.Network(addr); network != "" {
		return []bound{{network, perNetwork * l.limits.PerAddress}, own, all}
	}
	return []bound{own, all}
}

// take counts c if there is room for it, or if victim makes room.
func (l *limited) take(c *counted) (victim *counted, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range c.bounds {
		if b.most <= 0 || l.open[b.key] < b.most {
			continue
		}
		if b.key == "" {
			victim = l.victim(c.group())
		}
		if victim == nil {
			return nil, false
		}
		l.drop(victim)
	}
	l.conns[c] = true
	for _, b := range c.bounds {
		l.open[b.key]++
	}
	return victim, true
}

// victim is the connection that is silent for longest of the group that has most, nil if
// none has more than that of the newcomer. Connections of gateways are in no group.
func (l *limited) victim(newcomer string) (victim *counted) {
	most := 0
	if newcomer != "" {
		most = l.open[newcomer]
	}
	for c := range l.conns {
		switch n := l.open[c.group()]; {
		case c.group() == "" || n < most || n == most && (victim == nil || victim.seen.Load() <= c.seen.Load()):
		default:
			most, victim = n, c
		}
	}
	return victim
}

func (l *limited) drop(c *counted) {
	if !l.conns[c] {
		return
	}
	delete(l.conns, c)
	for _, b := range c.bounds {
		if l.open[b.key]--; l.open[b.key] <= 0 {
			delete(l.open, b.key)
		}
	}
}

// A counted connection counts until it is closed.
type counted struct {
	net.Conn

	in     *limited
	bounds []bound
	seen   atomic.Int64 // when something was read or written last
}

// group is the network or address that a connection counts for, empty for a gateway.
func (c *counted) group() string { return c.bounds[0].key }

func (c *counted) touch() { c.seen.Store(c.in.clock.Add(1)) }

// Read implements [net.Conn].
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.touch()
	return n, err
}

// Write implements [net.Conn].
func (c *counted) Write(b []byte) (int, error) {
	c.touch()
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.in.mu.Lock()
	c.in.drop(c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}
