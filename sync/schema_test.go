// SPDX-License-Identifier: Apache-2.0

package sync

import "k8s.io/client-go/rest"

// ReadSchemas makes schemas be read through raw.
func (c *Cluster) ReadSchemas(raw rest.Interface) { c.raw = raw }
