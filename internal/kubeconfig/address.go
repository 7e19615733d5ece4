// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: refuseAddress}
	return d.DialContext(ctx, network, address)
}

// refuseAddress is called with the address that a name has been resolved to.
func refuseAddress(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	return checkAddress(ap.Addr())
}

// refusedPrefixes are those where no API server can be, with what is there.
var refusedPrefixes = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"}, // RFC 3927; 169.254.169.254 are the credentials of a machine in most clouds
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},      // RFC 4291
	{netip.MustParsePrefix("fec0::/10"), "a site-local address"},      // RFC 3879: deprecated, and up to each network what it means
	{netip.MustParsePrefix("::/128"), "not the address of a host"},
	{netip.MustParsePrefix("0.0.0.0/8"), "not the address of a host"}, // RFC 1122: this network
	{netip.MustParsePrefix("224.0.0.0/4"), "not the address of a host"},
	{netip.MustParsePrefix("240.0.0.0/4"), "not the address of a host"}, // RFC 1112, with the broadcast address
	{netip.MustParsePrefix("ff00::/8"), "not the address of a host"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},                         // RFC 4380: what it leads to is hidden
	{netip.MustParsePrefix("100::/64"), "not the address of a host"},                 // RFC 6666: discarded
	{netip.MustParsePrefix("fd00:ec2::/32"), "an address of a cloud's own"},          // metadata, DNS and time of AWS
	{netip.MustParsePrefix("fd20:ce::254/128"), "an address of a cloud's own"},       // metadata of Google Cloud
	{netip.MustParsePrefix("fd00:a9fe:a9fe::/64"), "an address of a cloud's own"},    // metadata of Akamai (Linode)
	{netip.MustParsePrefix("fd00:42::42/128"), "an address of a cloud's own"},        // metadata of Scaleway
	{netip.MustParsePrefix("100.100.100.200/32"), "an address of a cloud's own"},     // metadata of Alibaba Cloud
	{netip.MustParsePrefix("168.63.129.16/32"), "an address of a cloud's own"},       // WireServer of Azure
	{netip.MustParsePrefix("192.0.0.192/32"), "an address of a cloud's own"},         // metadata of Oracle Cloud, older shapes
	{netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), "an address of a cloud's own"}, // metadata of Oracle Cloud
}

// wrappings are the prefixes of IPv6 addresses in which an IPv4 address travels, and the
// bytes where it is. A translator or tunnel on the way takes it out.
var wrappings = []struct {
	prefix netip.Prefix
	bytes  [4]int
}{
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},           // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}}, // IPv4-translated, RFC 2765
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}},    // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}},     // NAT64 of one network, RFC 8215,
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}},    // with a prefix of any length
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}}, // 6to4, RFC 3056
}

// checkAddress refuses what no API server has: link-local addresses and others where
// clouds serve the credentials of a machine, in any disguise, and those that name no
// host. Loopback addresses stay: there is the control plane of a quickstart, or of an
// App Cluster that is hosted beside it.
func checkAddress(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	for _, r := range refusedPrefixes {
		if r.prefix.Contains(addr) {
			return fmt.Errorf("%s is %s", addr, r.what)
		}
	}
	if addr.Is4() || addr.IsLoopback() {
		return nil
	}
	for _, w := range wrappings {
		if !w.prefix.Contains(addr) {
			continue
		}
		if err := checkWrapped(addr, w.bytes); err != nil {
			return err
		}
	}
	if b := addr.As16(); b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214
		return checkWrapped(addr, [4]int{12, 13, 14, 15})
	}
	return nil
}

func checkWrapped(addr netip.Addr, at [4]int) error {
	b := addr.As16()
	wrapped := netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]})
	if wrapped.As4()[0] == 0 {
		return nil // nothing is there, or nothing that could be reached
	}
	if err := checkAddress(wrapped); err != nil {
		return fmt.Errorf("%s stands for %w", addr, err)
	}
	return nil
}
