// SPDX-License-Identifier: Apache-2.0

// Package redirect holds the one rule on where an answer of the backend may be
// sent: to a program on the machine of the person who logs in, and nowhere else.
package redirect

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
)

// Path is the path of every redirect target.
const Path = "/callback"

var errRefused = errors.New("redirect_uri must be http://127.0.0.1:PORT/callback or http://[::1]:PORT/callback")

// Loopback returns raw parsed if it is http, a literal loopback IP, an explicit
// port, the path /callback, and nothing else. With legacy the host may also be
// localhost, which Klutch's own CLI listens on.
//
// A target is accepted only if it is written in the one way in which we would
// write it ourselves, so that no two parsers can read it differently.
func Loopback(raw string, legacy bool) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errRefused
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 || !loopback(u.Hostname(), legacy) {
		return nil, errRefused
	}
	host := u.Hostname() + ":" + strconv.FormatUint(port, 10)
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		host = netip.AddrPortFrom(addr, uint16(port)).String()
	}
	canonical := &url.URL{Scheme: "http", Host: host, Path: Path}
	if canonical.String() != raw {
		return nil, errRefused
	}
	return canonical, nil
}

func loopback(host string, legacy bool) bool {
	if host == "localhost" {
		return legacy
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() && !addr.Is4In6() && addr.Zone() == ""
}

// IsLoopback reports whether a host of a URL or an address is this machine, where http
// is as good as https.
func IsLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
