// SPDX-License-Identifier: Apache-2.0

package testplatform_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/testplatform"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// secret is what the faults make copies of.
func secret(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	u.SetNamespace("tenant")
	u.SetName(name)
	return u
}

func client(t *testing.T, p *testplatform.Platform) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(&rest.Config{Host: p.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: p.CA()}, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(secrets).Namespace("tenant")
}

// TestObjects: without an API server a platform keeps objects by itself.
func TestObjects(t *testing.T) {
	p := testplatform.Start(t, nil)
	p.Put("secrets", secret("put"))
	c := client(t, p)
	if _, err := c.Create(t.Context(), secret("made"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), secret("made"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("made twice: %v", err)
	}
	if _, err := c.Patch(t.Context(), "put", "application/merge-patch+json", []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	u, err := c.Get(t.Context(), "put", metav1.GetOptions{})
	if data, _, _ := unstructured.NestedString(u.Object, "data", "a"); err != nil || data != "b" {
		t.Errorf("patched is %v, %v", u, err)
	}
	list, err := c.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("listed %v, %v", list, err)
	}
	if err := c.Delete(t.Context(), "put", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), "put", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleted: %v", err)
	}
	yes := true
	w, err := c.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, want := range []string{"ADDED", "BOOKMARK"} {
		if e := <-w.ResultChan(); string(e.Type) != want {
			t.Errorf("event %v, want %s", e, want)
		}
	}
}

// TestFaults: each does what it says, for the requests that match, until it is mended.
func TestFaults(t *testing.T) {
	p := testplatform.Start(t, nil)
	p.Put("secrets", secret("one"))
	c := client(t, p)
	list := func() error { _, err := c.List(t.Context(), metav1.ListOptions{}); return err }
	for name, tc := range map[string]struct {
		fault testplatform.Fault
		check func(error) bool
	}{
		"refuse":    {testplatform.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no"), apierrors.IsForbidden},
		"malformed": {testplatform.Answer(http.StatusOK, "application/json", `{"items":`), func(err error) bool { return err != nil }},
		"hang":      {testplatform.Hang(), isTimeout},
		"trickle":   {testplatform.Trickle(10 * time.Millisecond), isTimeout},
	} {
		mend := p.Fault(testplatform.List("secrets"), tc.fault)
		if err := list(); !tc.check(err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
			t.Errorf("%s: the fault is for lists, and a read fails: %v", name, err)
		}
		mend()
		if err := list(); err != nil {
			t.Errorf("%s: mended: %v", name, err)
		}
	}
	if p.Asked(testplatform.List("secrets")) == 0 || p.Asked(testplatform.List("configmaps")) > 0 {
		t.Error("requests are not counted")
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestFloods: they go on for as long as a client reads.
func TestFloods(t *testing.T) {
	const enough = 16 << 20
	p := testplatform.Start(t, nil)
	for name, fault := range map[string]testplatform.Fault{
		"gzip":   testplatform.GzipBomb(),
		"body":   testplatform.Endless(http.StatusOK, "application/json", "{", " "),
		"list":   testplatform.EndlessList(secret("many")),
		"events": testplatform.EndlessEvents("ADDED", secret("many"), false),
	} {
		mend := p.Fault(testplatform.All, fault)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := trusting(t, p).Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n, err := io.CopyN(io.Discard, resp.Body, enough); err != nil {
			t.Errorf("%s ends after %d bytes: %v", name, n, err)
		}
		_ = resp.Body.Close()
		mend()
	}
}

func trusting(t *testing.T, p *testplatform.Platform) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(&rest.Config{Host: p.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: p.CA()}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPages: each has another one after it.
func TestPages(t *testing.T) {
	p := testplatform.Start(t, nil)
	p.Fault(testplatform.List("secrets"), testplatform.EndlessPages(secret("many"), 2))
	c, opts, seen := client(t, p), metav1.ListOptions{}, map[string]bool{}
	for range 3 {
		list, err := c.List(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			seen[u.GetName()] = true
		}
		opts.Continue = list.GetContinue()
	}
	if len(seen) != 6 || opts.Continue == "" {
		t.Errorf("saw %v, continue %q", seen, opts.Continue)
	}
}

// TestRewrite changes what is read, listed and watched.
func TestRewrite(t *testing.T) {
	p := testplatform.Start(t, nil)
	p.Put("secrets", secret("one"))
	p.Fault(testplatform.All, testplatform.Rewrite(func(u *unstructured.Unstructured) { u.SetUID("another") }))
	c := client(t, p)
	one, err := c.Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || one.GetUID() != "another" {
		t.Errorf("read %v, %v", one, err)
	}
	list, err := c.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetUID() != "another" {
		t.Errorf("listed %v, %v", list, err)
	}
	yes := true
	w, err := c.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if u, ok := (<-w.ResultChan()).Object.(*unstructured.Unstructured); !ok || u.GetUID() != "another" {
		t.Errorf("watched %v", u)
	}
}

// TestFront puts faults before any handler.
func TestFront(t *testing.T) {
	p := testplatform.Front(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "honest") }))
	get := func() string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/export", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := trusting(t, p).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // read only
		body, _ := io.ReadAll(resp.Body)
		return fmt.Sprint(len(resp.Header), " ", string(body))
	}
	if got := get(); !strings.HasSuffix(got, " honest") {
		t.Error(got)
	}
	mend := p.Fault(testplatform.Path("/export"), testplatform.Headers(100<<10))
	if got := get(); got < "1" || !strings.HasSuffix(got, " honest") {
		t.Error(got)
	}
	mend()
	p.Fault(testplatform.Path("/export"), testplatform.Answer(http.StatusTeapot, "text/plain", "lies"))
	if got := get(); !strings.HasSuffix(got, " lies") {
		t.Error(got)
	}
}
