// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/sync/internal/slim"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// TestP34AdmissionKnowsTheDenyList: the policy for tenants refuses what a Sync leaves
// out, and lets through of that what konnectors write: ours on targets and copies, and
// Klutch's, which takes along what kubectl noted.
func TestP34AdmissionKnowsTheDenyList(t *testing.T) {
	data, err := os.ReadFile("../deploy/backend/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`\(k in \[([^\]]*)\] \|\| k\.matches\('([^']*)'\)\) && !\(k in \[([^\]]*)\]\)`).FindStringSubmatch(string(data))
	if rule == nil {
		t.Fatal("the policy has no such rule")
	}
	list := func(text string) []string { return strings.Split(strings.ReplaceAll(text, "'", ""), ", ") }
	pattern, err := regexp.Compile(rule[2])
	if err != nil {
		t.Fatal(err)
	}
	refuses := func(key string) bool {
		return (slices.Contains(list(rule[1]), key) || pattern.MatchString(key)) && !slices.Contains(list(rule[3]), key)
	}
	keys := []string{"team", "notcrossplane.io/x", "crossplane.io.example.org/x", "app.kubernetes.io/name", "x/crossplane.io", "crossplane-io/x"}
	keys = append(keys, list(rule[1])...)
	for _, tool := range trackedBy {
		keys = append(keys, tool...)
	}
	for _, d := range travel.Trackers() {
		keys = append(keys, d+"/x", "sub."+d+"/x", "x"+d+"/x", d)
	}
	for _, d := range regexp.MustCompile(`[a-z0-9.-]+[.][a-z]+`).FindAllString(strings.ReplaceAll(rule[2], "[.]", "."), -1) {
		keys = append(keys, d+"/x")
	}
	written := []string{BoundAnnotation, SourceAnnotation, OwnerAnnotation, ReferrerAnnotation, OrphanedAnnotation, BehindAnnotation, AdoptedLabel, domain + "cluster-namespace", slim.LastApplied}
	for _, key := range append(keys, written...) {
		if want := travel.Denied(key) && !slices.Contains(written, key); refuses(key) != want {
			t.Errorf("%s: a Sync leaves it out: %t, the policy refuses it: %t", key, travel.Denied(key), refuses(key))
		}
	}
}
