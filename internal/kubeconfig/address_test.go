// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// addresses are where a kubeconfig may lead to, and where not, with what is said then.
var addresses = map[string]string{
	"10.0.0.1": "", "192.168.1.1": "", "100.64.0.1": "", "8.8.8.8": "", "169.253.1.1": "",
	"2001:db8::1": "", "fd12:3456::1": "", "2a00:1450::1": "",
	"127.0.0.1": "", "::1": "", "::ffff:127.0.0.1": "",
	"::ffff:10.0.0.1": "", "64:ff9b::10.0.0.1": "", "64:ff9b:1::8.8.8.8": "", "2002:808:808::1": "",

	"169.254.169.254": "link-local", "169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local", "febf::1": "link-local",
	"fec0::1":                "site-local",
	"::ffff:169.254.169.254": "link-local", "::169.254.169.254": "link-local", "::ffff:0:169.254.169.254": "link-local",
	"64:ff9b::169.254.169.254": "link-local", "64:ff9b::a9fe:a9fe": "link-local",
	"64:ff9b:1::169.254.169.254": "link-local", "64:ff9b:1:a9fe:a9:fe00::": "link-local", "64:ff9b:1:a9:fe:a9fe::": "link-local", "64:ff9b:1:0:a9:fea9:fe00:0": "link-local",
	"2002:a9fe:a9fe::1": "link-local", "2001:0:808:808::5601:5601": "Teredo",
	"fd12::5efe:169.254.169.254": "link-local", "fd12::200:5efe:a9fe:a9fe": "link-local",
	"fd00:ec2::254": "cloud", "fd20:ce::254": "cloud", "fd00:42::42": "cloud", "fd00:a9fe:a9fe::1": "cloud", "fd00:c1::a9fe:a9fe": "cloud",
	"100.100.100.200": "cloud", "168.63.129.16": "cloud", "192.0.0.192": "cloud",
	"::ffff:100.100.100.200": "cloud", "64:ff9b::168.63.129.16": "cloud", "2002:6464:64c8::": "cloud",
	"0.0.0.0": "not the address", "0.1.2.3": "not the address", "::": "not the address", "::ffff:0.0.0.0": "not the address",
	"224.0.0.1": "not the address", "ff02::1": "not the address", "255.255.255.255": "not the address", "240.0.0.1": "not the address", "100::1": "not the address",
	"64:ff9b::224.0.0.1": "not the address", "2002:ffff:ffff::": "not the address",
}

// TestP16Address: a kubeconfig leads to no link-local address and no metadata of a
// cloud, in no disguise: neither by an address in it, nor by a name that is resolved.
func TestP16Address(t *testing.T) {
	for address, refused := range addresses {
		for where, err := range map[string]error{
			"kubeconfig": checkServer("https://" + strings.Replace(net.JoinHostPort(address, "6443"), "%", "%25", 1)),
			"dial":       refuseAddress("tcp", net.JoinHostPort(address, "6443"), nil),
		} {
			if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
				t.Errorf("%s: %s: %v, want it to say %q", where, address, err, refused)
			}
		}
	}
	if refuseAddress("tcp", "nonsense", nil) == nil {
		t.Error("nonsense is connected to")
	}
	_, err := dial(t.Context(), "tcp", "169.254.169.254:443")
	var op *net.OpError
	if !errors.As(err, &op) || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("dial: %v", err)
	}
}

// FuzzP16Address: a refused IPv4 address is refused in each IPv6 address that carries it.
func FuzzP16Address(f *testing.F) {
	for _, seed := range []string{"169.254.169.254", "8.8.8.8", "224.0.0.1", "100.100.100.200"} {
		a := netip.MustParseAddr(seed).As4()
		f.Add(a[:], uint64(1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, host uint64) {
		if len(raw) != 4 || raw[0] == 0 {
			return
		}
		four := [4]byte(raw)
		plain := checkAddress(netip.AddrFrom4(four))
		tail := [8]byte{byte(host >> 56), byte(host >> 48), byte(host >> 40), byte(host >> 32), byte(host >> 24), byte(host >> 16), byte(host >> 8), byte(host)}
		for name, addr := range map[string]netip.Addr{
			"mapped": netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff, 12: four[0], 13: four[1], 14: four[2], 15: four[3]}),
			"NAT64":  netip.AddrFrom16([16]byte{1: 0x64, 2: 0xff, 3: 0x9b, 12: four[0], 13: four[1], 14: four[2], 15: four[3]}),
			"6to4":   netip.AddrFrom16([16]byte{0x20, 2, four[0], four[1], four[2], four[3], 0, 0, tail[0], tail[1], tail[2], tail[3], tail[4], tail[5], tail[6], tail[7]}),
		} {
			if err := checkAddress(addr); plain != nil && err == nil {
				t.Errorf("%s of %v: %s is connected to", name, four, addr)
			}
		}
	})
}
