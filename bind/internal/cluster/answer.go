// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/text"
)

// Explain is the words of package fates for err, shortened for a condition.
func Explain(err error) string { return Clip(fates.Explain(err)) }

// Trouble is explain for an error that may be nil.
func Trouble(err error) string {
	if err == nil {
		return ""
	}
	return Explain(err)
}

// IsExcess tells whether more came from a Control Plane Cluster than is let in.
func IsExcess(err error) bool {
	_, is := errors.AsType[*kubeconfig.ExcessError](err)
	return is
}

// IsNoAnswer tells whether err says that no API server gave an answer. One that is too large counts as an answer.
func IsNoAnswer(err error) bool {
	return !IsExcess(err) && fates.Is(err, fates.Unreachable, fates.Failing, fates.Broken, fates.Unknown, fates.Overloaded, fates.Ended)
}

// MaxMessage keeps what others can fill from filling our objects.
const MaxMessage = 1024

// Clip shortens a message to MaxMessage bytes of its beginning and end.
func Clip(message string) string { return text.Clip(message, MaxMessage) }

// mostNamed bounds how many things a condition names.
const mostNamed = 3

// Reasons returns the names of a map, each with its reason, shortened for a condition.
func Reasons(why map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(why)) {
		all = append(all, fmt.Sprintf("%s (%s)", name, text.Clip(why[name], MaxMessage/2/mostNamed)))
	}
	return all
}

// Some names a few of many.
func Some(all []string) string {
	parts := slices.Clone(all[:min(len(all), mostNamed)])
	if more := len(all) - mostNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}
