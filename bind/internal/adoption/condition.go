// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	mostNamed  = 3
	longestWhy = 120
)

// Condition says which objects are not claims, and why, and when to look again; zero if
// there is nothing to look at.
func (t *Tracker) Condition(binding string, terms Terms, now time.Time) (c v1alpha1.Condition, again time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := map[string][]string{}
	for claim, o := range t.waiting {
		left := max(o.next.Sub(now), time.Millisecond)
		if again == 0 || left < again {
			again = left
		}
		if o.reason != "" {
			names[o.reason] = append(names[o.reason], named(claim, o))
		}
	}
	c = v1alpha1.True(v1alpha1.ConditionObjectsAdopted)
	for _, reason := range []string{v1alpha1.ReasonAdoptionNotAgreed, v1alpha1.ReasonAdoptionLimit, v1alpha1.ReasonAdoptionRefused} {
		if all := names[reason]; len(all) > 0 {
			severity := v1alpha1.SeverityWarning
			if reason == v1alpha1.ReasonAdoptionNotAgreed {
				severity = v1alpha1.SeverityInfo
			}
			c = v1alpha1.False(c.Type, severity, reason, t.message(binding, reason, all, terms))
		}
	}
	return c, again
}

func (t *Tracker) message(binding, reason string, all []string, terms Terms) string {
	slices.Sort(all)
	number := fmt.Sprint(len(all), " objects")
	if len(all) == 1 {
		number = "1 object"
	}
	if t.more {
		number = "at least " + number
	}
	some := strings.Join(all[:min(len(all), mostNamed)], ", ")
	said := fmt.Sprintf("The provider has made %s in service namespaces without a claim here: %s. ", number, some)
	switch {
	case reason == v1alpha1.ReasonAdoptionLimit:
		return said + fmt.Sprintf("At most %d may be, twenty at once and then one in five seconds. To allow more, run: kubectl bind claims %s --adopt N", terms.Limit, binding)
	case reason == v1alpha1.ReasonAdoptionRefused:
		return said + "They are tried again, ever more rarely."
	case !terms.Offered:
		return said + "It does not offer them for adoption; they are left alone."
	}
	return said + fmt.Sprintf("This cluster has not agreed to that; they are left alone. To have up to N of them become claims, run: kubectl bind claims %s --adopt N", binding)
}

func named(claim cache.ObjectName, o *object) string {
	if o.why == "" {
		return text.Clip(claim.String(), longestWhy)
	}
	return text.Clip(claim.String()+" ("+o.why, longestWhy) + ")"
}
