// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestWriteRequests(t *testing.T) {
	const metrics = `# HELP apiserver_request_total [STABLE] Counter of apiserver requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="bench.example.org",resource="widgets",scope="resource",subresource="",verb="APPLY",version="v1"} 1000
apiserver_request_total{code="201",component="apiserver",dry_run="",group="bench.example.org",resource="gadgets",scope="resource",subresource="",verb="POST",version="v1"} 200
apiserver_request_total{code="409",component="apiserver",dry_run="",group="bench.example.org",resource="widgets",scope="resource",subresource="status",verb="PATCH",version="v1"} 30
apiserver_request_total{code="200",component="apiserver",dry_run="",group="bench.example.org",resource="widgets",scope="resource",subresource="",verb="DELETE",version="v1"} 4
apiserver_request_total{code="200",component="apiserver",dry_run="",group="bench.example.org",resource="widgets",scope="namespace",subresource="",verb="LIST",version="v1"} 7e+06
apiserver_request_total{code="200",component="apiserver",dry_run="",group="bench.example.org",resource="widgets",scope="cluster",subresource="",verb="WATCH",version="v1"} 7
apiserver_request_total{code="200",component="apiserver",dry_run="",group="klutch.anynines.com",resource="apiservicebindings",scope="resource",subresource="status",verb="PUT",version="v1alpha1"} 7
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="PUT",version="v1"} 7
apiserver_request_duration_seconds_count{group="bench.example.org",verb="APPLY"} 7
`
	got, err := writeRequests(strings.NewReader(metrics))
	if err != nil || got != 1234 {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := writeRequests(strings.NewReader(`apiserver_request_total{group="bench.example.org",verb="PUT"} many`)); err == nil {
		t.Error("no error for nonsense")
	}
}
