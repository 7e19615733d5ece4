// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrPolicy says that a backend asks for what no backend may have.
var ErrPolicy = errors.New("refused")

var (
	groupPattern    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	resourcePattern = regexp.MustCompile(`^[a-z][-a-z0-9]*[a-z0-9]$`)
	namePattern     = regexp.MustCompile(`^[a-z0-9A-Z]([-.:a-z0-9A-Z]*[a-z0-9A-Z])?$`)
)

// checkService keeps a backend from being given rights on what was here before it:
// Kubernetes' own groups and ours.
func checkService(r v1alpha1.GroupResource) error {
	if !groupPattern.MatchString(r.Group) || !resourcePattern.MatchString(r.Resource) {
		return fmt.Errorf("service %q: not <resource>.<group>: %w", r.String(), ErrPolicy)
	}
	if err := checkGroup(r.Group); err != nil {
		return fmt.Errorf("service %s: %w: %w", r, err, ErrPolicy)
	}
	return nil
}

// reserved are groups that no provider may define kinds of, nor in their subdomains.
var reserved = [...]string{"k8s.io", "kubernetes.io", v1alpha1.GroupVersion.Group}

func checkGroup(group string) error {
	if !strings.Contains(group, ".") {
		return fmt.Errorf("group %q is one of Kubernetes itself", group)
	}
	for _, r := range reserved {
		if group == r || strings.HasSuffix(group, "."+r) {
			return fmt.Errorf("group %q is reserved", group)
		}
	}
	return nil
}

// checkClaim keeps wildcards and the like out of the konnector's rights.
func checkClaim(c Claim) error {
	good := func(name string) bool { return name == anyName || namePattern.MatchString(name) }
	if (c.Group == "" || groupPattern.MatchString(c.Group)) && resourcePattern.MatchString(c.Resource) &&
		!slices.ContainsFunc(c.Selector.Names, func(name string) bool { return !good(name) }) {
		return nil
	}
	return fmt.Errorf("service %s claims %q: not a resource: %w", c.Service, c.String(), ErrPolicy)
}
