// SPDX-License-Identifier: Apache-2.0

// Package fakecluster is an API server in memory, behind the interfaces of the
// dynamic and the metadata client.
//
// It does what controllers depend on and client-go's own fakes do not: UIDs,
// resourceVersions and generations; optimistic locking and preconditions;
// finalizers and deletionTimestamps; the status subresource; watches that replay
// their history; server-side apply with the field manager of real API servers.
// A Schema says which fields there are; it knows no types: every list but that
// of the finalizers is atomic, unless Types says otherwise.
// Times are those of package time, so that it works in a bubble of
// testing/synctest.
//
//	c := fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
//	_, err := c.Client().Resource(widgets).Namespace("default").Create(ctx, widget, metav1.CreateOptions{})
//
// Faults are injected with Intercept.
package fakecluster
