// SPDX-License-Identifier: Apache-2.0

// Package arch has only a test: it guards the arrows between packages, what the
// public ones may import, and that each explains itself.
package arch
