// SPDX-License-Identifier: Apache-2.0

package osb_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klutch-go/sdk/examples/servicebroker/osb"
)

// TestAnswers is the specification's table "Orphan Mitigation", and 410.
func TestAnswers(t *testing.T) {
	for _, row := range []struct {
		status       int
		body         string
		done, orphan bool
		want         string // of the error; empty: success
	}{
		{200, `{}`, true, false, ""},
		{200, `nonsense`, false, false, "200: the answer is not what the specification says"},
		{201, `{}`, true, false, ""},
		{201, `nonsense`, false, true, "201: the answer is not"},
		{202, `{"operation":"o"}`, false, false, ""},
		{202, `[]`, false, true, "202: the answer is not"},
		{204, ``, false, true, "204: No Content"},
		{301, `{}`, false, false, "301: Moved Permanently"},
		{400, `{"description":"no"}`, false, false, "400: no"},
		{408, ``, false, true, "408: Request Timeout"},
		{410, `{}`, false, false, "410: Gone"},
		{422, `{"error":"ConcurrencyError","description":"busy"}`, false, false, "422: ConcurrencyError busy"},
		{500, `<html>`, false, true, "500: Internal Server Error"},
		{200, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, false, false, "200: the answer ends early or is longer"},
		{201, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, false, true, "201: the answer ends early or is longer"},
	} {
		t.Run(fmt.Sprint(row.status, " ", row.body[:min(len(row.body), 12)]), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.body)
			}))
			defer server.Close()
			answer, err := osb.Broker{URL: server.URL}.Provision(t.Context(), osb.Request{Instance: "i"})
			e, failed := errors.AsType[*osb.Error](err)
			if failed != (row.want != "") || failed && (!strings.HasPrefix(e.Error(), row.want) || e.Orphan != row.orphan) || answer.Done != row.done {
				t.Errorf("%+v, %#v", answer, err)
			}
			answer, err = osb.Broker{URL: server.URL}.Delete(t.Context(), osb.Request{Instance: "i"})
			if row.status == 410 && (err != nil || !answer.Gone) {
				t.Errorf("410 on a deletion: %+v, %v", answer, err)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	broker := osb.Broker{URL: server.URL, Username: "u", Password: "p"}
	_, err := broker.Delete(t.Context(), osb.Request{Instance: "a/b", Part: osb.Bindings, ID: "c", Service: "s", Plan: "p", Identity: map[string]any{"username": "dana"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "DELETE /v2/service_instances/a%2Fb/service_bindings/c?accepts_incomplete=true&plan_id=p&service_id=s 2.17 kubernetes eyJ1c2VybmFtZSI6ImRhbmEifQ=="
	have := fmt.Sprint(got.Method, " ", got.RequestURI, " ", got.Header.Get("X-Broker-API-Version"), " ", got.Header.Get("X-Broker-API-Originating-Identity"))
	if user, password, _ := got.BasicAuth(); have != want || user != "u" || password != "p" {
		t.Errorf("got %s, want %s", have, want)
	}
}

func TestSlow(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		close(ended)
	}))
	defer server.Close()
	_, err := osb.Broker{URL: server.URL, Limit: 50 * time.Millisecond, Password: "hush"}.Provision(t.Context(), osb.Request{Instance: "i"})
	e, ok := errors.AsType[*osb.Error](err)
	if !ok || !e.Orphan || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
	<-ended
}
