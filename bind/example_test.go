// SPDX-License-Identifier: Apache-2.0

package bind_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A konnector inside another program runs for as long as its context, whether or not
// its cluster can be reached.
func ExampleNew() {
	config := &rest.Config{Host: "https://127.0.0.1:1"} // usually rest.InClusterConfig()
	k, err := bind.New(config, bind.Options{Version: "v1.2.0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(k.Run(ctx))
	// Output: <nil>
}

// Whoever binds an API passes the rights on its objects on to the konnector.
func ExampleRights() {
	spec := v1alpha1.APIServiceExportSpec{}
	spec.Group, spec.Names.Plural = "example.org", "widgets"
	for _, object := range bind.Rights(spec, nil) {
		fmt.Println(object.GetKind(), object.GetName())
	}
	// Output:
	// ClusterRole klutch-bind-konnector-widgets.example.org
}
