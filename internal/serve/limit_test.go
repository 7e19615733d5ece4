// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/internal/serve"
)

// from is a connection of an address.
type from struct {
	net.Conn

	addr   string
	closed *bool
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr)) }

func (f from) Write(b []byte) (int, error) { return len(b), nil }

func (f from) Close() error {
	*f.closed = true
	return nil
}

// one is a listener to which one connection comes.
type one struct{ conn net.Conn }

func (o *one) Accept() (net.Conn, error) {
	if o.conn == nil {
		return nil, net.ErrClosed
	}
	conn := o.conn
	o.conn = nil
	return conn, nil
}

func (o *one) Close() error   { return nil }
func (o *one) Addr() net.Addr { return &net.TCPAddr{} }

// P10: neither one address nor one network nor all together hold more connections than
// they may; one that ends makes room for another.
func TestP10Connections(t *testing.T) {
	inner := &one{}
	ln := serve.Limited(inner, serve.Limits{All: 24, PerAddress: 2, Free: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	var open []net.Conn
	expect := func(want bool, format string, args ...any) {
		t.Helper()
		closed := false
		inner.conn = from{addr: fmt.Sprintf(format, args...), closed: &closed}
		conn, err := ln.Accept()
		if err == nil {
			open = append(open, conn)
		}
		if (err == nil) != want || closed == want {
			t.Errorf("connection of %s: served is %t, closed is %t", fmt.Sprintf(format, args...), err == nil, closed)
		}
	}
	for i := range 4 {
		expect(i < 2, "192.0.2.1:%d", i+1)
	}
	expect(true, "192.0.2.2:1")
	for i := range 4 {
		expect(true, "10.0.0.1:%d", i+1)
	}
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	_ = open[0].Close() // counts once
	expect(true, "[::ffff:192.0.2.1]:9")
	expect(false, "192.0.2.1:10")
	for i := range 17 { // of one /48, and seven are open beside
		expect(i < 16, "[2001:db8:1:%x::1]:1", i)
	}
	expect(true, "192.0.2.3:1")
	expect(true, "192.0.2.4:1") // in place of one of the /48, which has most
	expect(true, "10.0.0.1:9")
}

// P10: a client that fills all connections keeps no other out: a newcomer takes the place of the one
// that is silent for longest of the address that has most, and of no gateway's.
func TestP10ConnectionsFull(t *testing.T) {
	inner := &one{}
	ln := serve.Limited(inner, serve.Limits{All: 8, PerAddress: 4, Free: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	conns, closed := map[string]net.Conn{}, map[string]*bool{}
	come := func(addr string) bool {
		closed[addr] = new(bool)
		inner.conn = from{addr: addr, closed: closed[addr]}
		conn, err := ln.Accept()
		conns[addr] = conn
		return err == nil
	}
	for _, addr := range []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "192.0.2.9:1", "192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.2:1"} {
		if !come(addr) {
			t.Fatalf("%s is refused though there is room", addr)
		}
	}
	_, _ = conns["192.0.2.1:1"].Write(nil) // it is silent no more
	for _, step := range []struct {
		comes, goes string
		refused     bool
	}{
		{comes: "192.0.2.1:4", refused: true}, // it has most itself
		{comes: "192.0.2.3:1", goes: "192.0.2.1:2"},
		{comes: "10.0.0.2:1", goes: "192.0.2.1:3"},
		{comes: "192.0.2.2:2", refused: true}, // all have one
		{comes: "192.0.2.4:1", goes: "192.0.2.9:1"},
	} {
		before := gone(closed)
		if ok := come(step.comes); ok == step.refused {
			t.Errorf("%s is served: %t", step.comes, ok)
		}
		delete(before, step.comes)
		after := gone(closed)
		delete(after, step.comes)
		if step.goes != "" {
			before[step.goes] = true
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("when %s comes (-want +got):\n%s", step.comes, diff)
		}
	}
}

func gone(closed map[string]*bool) map[string]bool {
	all := map[string]bool{}
	for addr, is := range closed {
		if *is {
			all[addr] = true
		}
	}
	return all
}
