// SPDX-License-Identifier: Apache-2.0

// Package watchstore reads what API servers send of many objects.
package watchstore
