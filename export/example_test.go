// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/export"
)

func ExampleNew() {
	config := &rest.Config{Host: "https://api.example.com"} // usually rest.InClusterConfig
	exporter, err := export.New(config, export.Options{NamespacePrefix: "tenant"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = exporter.Run // runs the controllers until its context ends
	fmt.Println("ready")
	// Output: ready
}
