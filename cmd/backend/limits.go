// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"strconv"
)

// limitFlags bound what tenants can do. Their defaults are the defaults of package export.
func (f *flags) limitFlags(fs *flag.FlagSet) {
	o := &f.backend.Options
	fs.Func("max-tenants", "how many tenants there may be; -1 means any number (default 5000)", most(&o.Caps.Tenants))
	fs.Func("max-clusters-per-identity", "how many App Clusters one person or machine may bind; -1 means any number (default 50)", most(&o.Caps.PerIdentity))
	fs.Func("max-namespaces-per-tenant", "how many service namespaces one tenant may have; -1 means any number (default 200)", most(&o.Caps.Namespaces))
	fs.Func("max-objects-per-namespace", "how many objects of each API may be in one service namespace; -1 means any number (default 1000)", most(&o.Caps.Objects))
	fs.Func("removals-at-once", "how many tenants may be removed at the same time; -1 means any number (default 3)", most(&o.RemovalsAtOnce))
	fs.Func("gate", "name of a gate that is closed for each tenant until gate.klutch.anynines.com/NAME=open stands on its namespace, may be repeated",
		appendTo(&o.Gates))
}

// most refuses 0, which a reader takes for "none" and package export for the default.
func most(target *int) func(string) error {
	return func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < -1 || n == 0 {
			return errors.New("must be a number of at least 1, or -1 for any number")
		}
		*target = n
		return nil
	}
}
