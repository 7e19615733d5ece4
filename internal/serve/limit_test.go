// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/klutch-go/sdk/internal/serve"
)

// from is a connection of an address.
type from struct {
	net.Conn

	addr   string
	closed *bool
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr)) }

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
	expect(false, "192.0.2.4:1")
	expect(false, "10.0.0.1:9")
}
