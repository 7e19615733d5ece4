// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
)

// A sight is what each incarnation of a konnector can have seen of an object: I11
// says that what it could not see justifies nothing.
type sight struct {
	clock int            // counts what is noted here
	blind map[string]int // since when a view is unknown; no entry: since the start
	known map[string]bool
	ended map[string]int // when the last pass over a source did
	got   map[string]int // when an object was last read live, or found absent

	astray map[string]int // answers since the last watch that ask for another request
}

func newSight() *sight {
	return &sight{blind: map[string]int{}, known: map[string]bool{}, ended: map[string]int{}, got: map[string]int{}, astray: map[string]int{}}
}

func (k *konnector) at(parts ...any) string { return fmt.Sprint(k.id, ".", k.born, parts) }

// passed notes the end of a pass over a source.
func (v *sight) passed(k *konnector, source cache.ObjectName) {
	v.clock++
	v.ended[k.at(source)] = v.clock
}

// answered notes what came of a request. That a version is too old makes a view
// old, not unknown; nor do other answers after which a reflector asks for something else, as long
// as there is something else to ask for.
func (v *sight) answered(c *call, err error) {
	v.clock++
	view := c.konnector.at(c.side, c.request.Object.Namespace)
	if err != nil && c.made {
		delete(c.konnector.orders, c.request.Object)
	}
	switch r := c.request; {
	case r.Resource == simNamespaces && r.Verb == "get" && err == nil:
		c.konnector.knows[c.side] = v.clock
	case r.Resource != simThings:
	case r.Verb == "get" && (err == nil || apierrors.IsNotFound(err)):
		v.got[c.konnector.at(c.side, r.Object)] = v.clock
	case r.Verb != "list" && r.Verb != "watch" || apierrors.IsResourceExpired(err):
	case err == nil:
		v.known[view] = true
		if r.Verb == "watch" {
			v.astray[view] = 0
		}
	case isStray(err) && v.astray[view] < waysToAsk:
		v.astray[view]++
	case v.known[view]:
		v.known[view] = false
		v.blind[view] = v.clock
	}
}

// waysToAsk is how many requests a reflector has for the same.
const waysToAsk = 4

// isStray reports whether a reflector asks for something else after err.
func isStray(err error) bool { return slices.Contains(strays, fates.Of(err)) }

var strays = []fates.Kind{fates.Expired, fates.Ahead, fates.Invalid, fates.Replaced, fates.Malformed, fates.NotAllowed, fates.NotAcceptable}

// unseen says which side a konnector that sends c about a source cannot have seen
// since its last pass over that source ended; empty if none.
func (v *sight) unseen(c *call, source, target cache.ObjectName) string {
	ended := v.ended[c.konnector.at(source)]
	for side, name := range []cache.ObjectName{source, target} {
		known, blind := false, 0
		for _, scope := range []string{"", name.Namespace} {
			known = known || v.known[c.konnector.at(side, scope)]
			blind = max(blind, v.blind[c.konnector.at(side, scope)])
		}
		if !known && blind <= ended && v.got[c.konnector.at(side, name)] <= ended {
			return sideName(side)
		}
	}
	return ""
}
