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

// What an answer means to the platform.
const (
	done    = "done"
	goesOn  = "goes on"
	gone    = "gone"
	refused = "refused"           // or a failure, after which nothing was made
	orphan  = "perhaps an orphan" // orphan mitigation is to be done
	final   = "refused for good"  // the same update fails again
	damaged = "refused, damaged"  // and the instance cannot be used
)

// TestTables is the specification's tables of answers, request by request, with the column
// of orphan mitigation.
func TestTables(t *testing.T) {
	binding := osb.Request{Instance: "i", Part: osb.Bindings, ID: "b"}
	ask := map[string]func(b osb.Broker) (osb.Answer, error){
		"catalogue": func(b osb.Broker) (osb.Answer, error) {
			_, err := b.Catalog(t.Context())
			return osb.Answer{Done: err == nil}, err
		},
		"provision": func(b osb.Broker) (osb.Answer, error) { return b.Provision(t.Context(), osb.Request{Instance: "i"}) },
		"update":    func(b osb.Broker) (osb.Answer, error) { return b.Update(t.Context(), osb.Request{Instance: "i"}) },
		"bind":      func(b osb.Broker) (osb.Answer, error) { return b.Make(t.Context(), binding) },
		"fetch":     func(b osb.Broker) (osb.Answer, error) { return b.Fetch(t.Context(), binding) },
		"last operation": func(b osb.Broker) (osb.Answer, error) {
			return b.LastOperation(t.Context(), osb.Request{Instance: "i"}, "o")
		},
		"last operation, bound": func(b osb.Broker) (osb.Answer, error) { return b.LastOperation(t.Context(), binding, "o") },
		"unbind":                func(b osb.Broker) (osb.Answer, error) { return b.Delete(t.Context(), binding) },
		"deprovision":           func(b osb.Broker) (osb.Answer, error) { return b.Delete(t.Context(), osb.Request{Instance: "i"}) },
	}
	const broken = `nonsense`
	code := func(code string) string { return `{"error":"` + code + `","description":"words"}` }
	for _, row := range []struct {
		request string
		status  int // 0: the connection is closed
		body    string
		means   string
		says    string // of the error
	}{
		{"catalogue", 200, `{"services":[]}`, done, ""},
		{"catalogue", 200, broken, refused, "200: the answer is not what the specification says"},
		{"catalogue", 401, ``, refused, "401: Unauthorized"},

		{"provision", 200, `{}`, done, ""},
		{"provision", 200, broken, refused, "200: the answer is not what the specification says"},
		{"provision", 200, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, refused, "200: the answer ends early or is longer"},
		{"provision", 201, `{}`, done, ""},
		{"provision", 201, broken, orphan, "201: the answer is not what the specification says"},
		{"provision", 201, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, orphan, "201: the answer ends early or is longer"},
		{"provision", 202, `{"operation":"o"}`, goesOn, ""},
		{"provision", 202, `[]`, orphan, "202: the answer is not what the specification says"},
		{"provision", 204, ``, orphan, "204: No Content"},
		{"provision", 301, `{}`, refused, "301: Moved Permanently"},
		{"provision", 400, code(""), refused, "400: words"},
		{"provision", 408, ``, refused, "408: Request Timeout"},
		{"provision", 409, `{}`, refused, "409: Conflict"},
		{"provision", 410, `{}`, refused, "410: Gone"},
		{"provision", 422, code("AsyncRequired"), refused, "422: AsyncRequired words"},
		{"provision", 422, code("ConcurrencyError"), refused, "422: ConcurrencyError words"},
		{"provision", 422, code("MaintenanceInfoConflict"), refused, "422: MaintenanceInfoConflict words"},
		{"provision", 500, `<html>`, orphan, "500: Internal Server Error"},
		{"provision", 0, ``, orphan, "the broker does not answer"},

		{"update", 200, `{}`, done, ""},
		{"update", 202, `{"operation":"o"}`, goesOn, ""},
		{"update", 204, ``, refused, "204: No Content"},
		{"update", 400, code(""), refused, "400: words"},
		{"update", 422, code("AsyncRequired"), refused, "422: AsyncRequired words"},
		{"update", 422, code("ConcurrencyError"), refused, "422: ConcurrencyError words"},
		{"update", 422, code("MaintenanceInfoConflict"), refused, "422: MaintenanceInfoConflict words"},
		{"update", 422, `{"description":"words","update_repeatable":false,"instance_usable":true}`, final, "422: words"},
		{"update", 400, `{"description":"words","instance_usable":false}`, damaged, "400: words"},
		{"update", 422, `{"description":"words","update_repeatable":true,"instance_usable":true}`, refused, "422: words"},
		{"update", 500, ``, refused, "500: Internal Server Error"},
		{"update", 0, ``, refused, "the broker does not answer"},

		{"bind", 200, `{"credentials":{}}`, done, ""},
		{"bind", 201, `{"credentials":{}}`, done, ""},
		{"bind", 201, broken, orphan, "201: the answer is not what the specification says"},
		{"bind", 201, `{"credentials":{},"metadata":{"expires_at":"2030-01-01T00:00:00Z"}}`, "done until 2030-01-01T00:00:00Z", ""},
		{"bind", 202, `{}`, goesOn, ""},
		{"bind", 400, code(""), refused, "400: words"},
		{"bind", 408, ``, refused, "408: Request Timeout"},
		{"bind", 409, `{}`, refused, "409: Conflict"},
		{"bind", 422, code("RequiresApp"), refused, "422: RequiresApp words"},
		{"bind", 422, code("AsyncRequired"), refused, "422: AsyncRequired words"},
		{"bind", 422, code("ConcurrencyError"), refused, "422: ConcurrencyError words"},
		{"bind", 503, ``, orphan, "503: Service Unavailable"},
		{"bind", 0, ``, orphan, "the broker does not answer"},

		{"fetch", 200, `{"credentials":{}}`, done, ""},
		{"fetch", 404, `{}`, refused, "404: Not Found"},
		{"fetch", 500, ``, refused, "500: Internal Server Error"},

		{"last operation", 200, `{"state":"in progress"}`, "in progress", ""},
		{"last operation", 200, `{"state":"succeeded"}`, "succeeded", ""},
		{"last operation", 200, `{"state":"failed"}`, "failed", ""}, // of a provision, mitigated by the controller: TestTrouble
		{"last operation", 200, `{"state":"failed","update_repeatable":false}`, "failed, " + final, ""},
		{"last operation", 200, `{"state":"failed","instance_usable":false}`, "failed, " + damaged, ""},
		{"last operation", 400, code(""), refused, "400: words"},
		{"last operation", 404, `{}`, refused, "404: Not Found"},
		{"last operation", 410, `{}`, gone, ""},
		{"last operation", 500, ``, refused, "500: Internal Server Error"},
		{"last operation", 0, ``, refused, "the broker does not answer"},
		{"last operation, bound", 200, `{"state":"failed"}`, "failed", ""},
		{"last operation, bound", 404, `{}`, refused, "404: Not Found"},
		{"last operation, bound", 410, `{}`, gone, ""},

		{"unbind", 200, `{}`, done, ""},
		{"unbind", 202, `{}`, goesOn, ""},
		{"unbind", 400, code(""), refused, "400: words"},
		{"unbind", 404, `{}`, refused, "404: Not Found"},
		{"unbind", 410, `{}`, gone, ""},
		{"unbind", 422, code("ConcurrencyError"), refused, "422: ConcurrencyError words"},
		{"unbind", 500, ``, refused, "500: Internal Server Error"}, // it is asked for until it succeeds

		{"deprovision", 200, `{}`, done, ""},
		{"deprovision", 202, `{"operation":"o"}`, goesOn, ""},
		{"deprovision", 400, code(""), refused, "400: words"},
		{"deprovision", 410, `{}`, gone, ""},
		{"deprovision", 422, code("AsyncRequired"), refused, "422: AsyncRequired words"},
		{"deprovision", 422, code("ConcurrencyError"), refused, "422: ConcurrencyError words"},
		{"deprovision", 500, ``, refused, "500: Internal Server Error"},
		{"deprovision", 0, ``, refused, "the broker does not answer"},
	} {
		t.Run(fmt.Sprint(row.request, " ", row.status, " ", row.body[:min(len(row.body), 24)]), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if row.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.body)
			}))
			defer server.Close()
			answer, err := ask[row.request](osb.Broker{URL: server.URL})
			if have := meaning(answer, err); have != row.means || (err != nil) != (row.says != "") || err != nil && !strings.HasPrefix(err.Error(), row.says) {
				t.Errorf("%s: %+v, %v; want %s %q", have, answer, err, row.means, row.says)
			}
		})
	}
}

func meaning(answer osb.Answer, err error) string {
	e, told := errors.AsType[*osb.Error](err)
	switch {
	case told && e.Orphan:
		return orphan
	case told && e.Unusable:
		return damaged
	case told && e.Final:
		return final
	case err != nil:
		return refused
	case answer.Gone:
		return gone
	case answer.Unusable:
		return answer.State + ", " + damaged
	case answer.Final:
		return answer.State + ", " + final
	case answer.State != "":
		return answer.State
	case answer.Expires != "":
		return done + " until " + answer.Expires
	case answer.Done:
		return done
	}
	return goesOn
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
