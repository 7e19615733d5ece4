// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"errors"
	"strings"
)

// parsePath splits a path such as status.managed.secret.name.
func parsePath(path string) ([]string, error) {
	fields := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, "$"), "."), ".")
	for _, f := range fields {
		if f == "" {
			return nil, errors.New("has an empty path element")
		}
	}
	return fields, nil
}
