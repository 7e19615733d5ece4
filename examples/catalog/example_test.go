// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"

	"github.com/klutch-go/sdk/examples/catalog"
)

func Example() {
	for _, crd := range catalog.CRDs() {
		fmt.Println("API:  ", crd.GetName())
	}
	for _, object := range catalog.Claims() {
		fmt.Println("claim:", object.GetKind(), object.GetName())
	}
	// Output:
	// API:   backups.anynines.com
	// API:   keyvalueinstances.anynines.com
	// API:   postgresqlinstances.anynines.com
	// API:   restores.anynines.com
	// API:   servicebindings.anynines.com
	// claim: PostgresqlInstance orders
	// claim: ServiceBinding orders-api
	// claim: Backup orders-before-migration
	// claim: Restore orders-undo-migration
}
