// SPDX-License-Identifier: Apache-2.0

package watchstore

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Newer reports whether resourceVersion a is later than b, of objects of one resource; false if
// that cannot be told.
func Newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
