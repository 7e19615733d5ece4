// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrPolicy says that a backend asks for what no backend may have.
var ErrPolicy = errors.New("refused")

var namePattern = regexp.MustCompile(`^[a-z0-9A-Z]([-.:a-z0-9A-Z]*[a-z0-9A-Z])?$`)

// Check fails on what Install would fail on for the sake of the App Cluster alone, so that
// no login is in vain. Services are named "<resource>.<group>".
func Check(ctx context.Context, config *rest.Config, names []string) error {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return err
	}
	i := &installer{app: app, existing: map[string]*v1alpha1.APIServiceBinding{}}
	for _, name := range names {
		if err := errors.Join(CheckService(name), i.lookForBinding(ctx, name)); err != nil {
			return err
		}
	}
	return nil
}

// CheckService fails on a name that no service can have. The error is ErrPolicy.
func CheckService(name string) error {
	resource, group, _ := strings.Cut(name, ".")
	return checkService(v1alpha1.GroupResource{Group: group, Resource: resource})
}

// checkService keeps a backend from being given rights on what was here before it:
// Kubernetes' own groups and ours.
func checkService(r v1alpha1.GroupResource) error {
	if r.Group == "" || !permission.IsResource(r) {
		return fmt.Errorf("service %q: not <resource>.<group>: %w", r.String(), ErrPolicy)
	}
	if err := crd.CheckGroup(r.Group); err != nil {
		return fmt.Errorf("service %s: %w: %w", r, err, ErrPolicy)
	}
	return nil
}

// checkClaim keeps wildcards and the like out of the konnector's rights, and what no person
// reads out of what they are asked.
func checkClaim(c Claim) error {
	good := func(name string) bool { return name == permission.AnyName || namePattern.MatchString(name) }
	if !permission.IsResource(c.GroupResource) ||
		!every(slices.Concat(c.Selector.Names, c.Selector.Namespaces), good) {
		return fmt.Errorf("service %s claims %q: not a resource: %w", c.Service, c.String(), ErrPolicy)
	}
	if n := parts(c); n > mostParts {
		return fmt.Errorf("service %s claims %s with %d names, paths and labels, more than %d: %w", c.Service, c.String(), n, mostParts, ErrPolicy)
	}
	return nil
}

func every(names []string, good func(string) bool) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !good(name) })
}

// mostParts is how many names, paths, labels and the like a claim may have: as many as a
// person reads before they agree to it.
const mostParts = 100

// parts counts the terms of a claim.
func parts(c Claim) int {
	labels, annotations := c.Metadata()
	n := len(c.Selector.Names) + len(c.Selector.Namespaces) + len(c.Selector.References) + len(labels) + len(annotations)
	for _, match := range c.Selector.LabelSelectors {
		n += max(1, len(match))
	}
	if c.Update != nil {
		n += len(c.Update.Fields) + len(c.Update.Preserving)
	}
	return n
}

// A Standing says how a claim can be accepted.
type Standing string

// The standings.
const (
	StandingOrdinary Standing = "Ordinary" // also along with others, unnamed
	StandingByName   Standing = "ByName"   // by an answer that names it
	StandingNever    Standing = "Never"    // not at all
)

// A Claim is a permission claim of a service, with the answer that it has.
type Claim struct {
	Service v1alpha1.GroupResource
	v1alpha1.AcceptablePermissionClaim

	// Standing says how the claim can be accepted, and Why what is not ordinary about
	// it. A claim that can never be is Rejected, whatever the answer.
	Standing Standing
	// Wide says that the service is cluster-scoped: no namespace has an object of it.
	Wide bool
	Why  string
}

// Metadata are the keys of the labels and annotations that travel with the objects; a
// "*" at the end stands for any text.
func (c Claim) Metadata() (labels, annotations []string) {
	return permission.MetadataKeys(c.Service.Group, c.PermissionClaim)
}
