// SPDX-License-Identifier: Apache-2.0

// Package osb speaks the Open Service Broker API, version 2.17, as a platform. Each
// answer is bounded in size and time, and sorted as the specification's tables do.
//
//	broker := osb.Broker{URL: "https://broker.example", Username: user, Password: password}
//	answer, err := broker.Provision(ctx, osb.Request{Instance: uid, Service: serviceID, Plan: planID})
package osb

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	version = "2.17"
	// answerLimit bounds an answer, timeLimit how long a broker may take for it, waitLimit the
	// pause that it may ask for.
	answerLimit = 1 << 20
	timeLimit   = time.Minute
	waitLimit   = 10 * time.Minute
)

// A Broker is one that is asked.
type Broker struct {
	URL, Username, Password string
	HTTP                    *http.Client
	// Limit is how long an answer may take; zero means a minute.
	Limit time.Duration
}

// Parts of an instance, as they stand in paths. The specification has Bindings alone; a
// service with the others says so in its metadata, {"actions": ["backups", "restores"]}.
// They are asked for, followed and deleted by the same calls as Bindings.
const (
	Bindings = "service_bindings"
	Backups  = "backups"
	Restores = "restores"
)

// A Request is about an instance or, with a Part, about the one of that ID.
type Request struct {
	Instance, Part, ID string
	Service, Plan      string // IDs of the catalogue
	Backup, BackupOf   string // of Restores: what is restored, and the instance that it is of
	Parameters         map[string]any
	Context            map[string]any // "platform" and what the platform tells of itself
	PreviousPlan       string         // of an update
	// Identity of the person or program that asks, for X-Broker-API-Originating-Identity.
	Identity map[string]any
}

// An Answer is that of a success.
type Answer struct {
	Done        bool // false: the operation goes on
	Gone        bool // the broker does not know it, or does not any more
	Operation   string
	State       string // of LastOperation: "in progress", "succeeded" or "failed"
	Description string
	Credentials map[string]any
	Expires     string // of a binding: when its credentials end, in the broker's words
	RetryAfter  time.Duration
	Failure     // of LastOperation
}

// A Failure is what a broker says beside that an update failed.
type Failure struct {
	Final    bool // the same update will fail again
	Unusable bool // the instance cannot be used any more
}

// An Error is an answer that is not a success.
type Error struct {
	Status      int    // 0: there was none
	Code        string // "ConcurrencyError", "AsyncRequired", …
	Description string
	// Orphan reports that something may have been made all the same, so that the
	// platform must delete it.
	Orphan     bool
	RetryAfter time.Duration
	Failure    // of Update
}

// Error says the status, what it means and the broker's own words.
func (e *Error) Error() string {
	text := e.Description
	if e.Code != "" {
		text = strings.TrimSpace(e.Code + " " + text)
	}
	if e.Status == 0 {
		return text
	}
	if text == "" {
		text = http.StatusText(e.Status)
	}
	return fmt.Sprintf("%d: %s", e.Status, text)
}

// A Service is one of a broker's catalogue.
type Service struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Plans    []Plan `json:"plans"`
	Metadata struct {
		Actions json.RawMessage `json:"actions"`
	} `json:"metadata"`
	Abilities
}

// A Plan is one of a Service.
type Plan struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// MaximumPollingDuration is in seconds; zero means as long as the platform likes.
	MaximumPollingDuration int `json:"maximum_polling_duration"`
	Abilities
}

// Abilities are said of a service; a plan may say otherwise of itself.
type Abilities struct {
	Bindable       *bool `json:"bindable"`        // nil of a service: true, although the specification wants it said
	PlanUpdateable *bool `json:"plan_updateable"` // nil of a service: false
}

// of returns the abilities of a plan.
func (s Service) of(plan string) Abilities {
	of := s.Abilities
	if i := slices.IndexFunc(s.Plans, func(p Plan) bool { return p.ID == plan }); i >= 0 {
		of.Bindable = cmp.Or(s.Plans[i].Bindable, of.Bindable)
		of.PlanUpdateable = cmp.Or(s.Plans[i].PlanUpdateable, of.PlanUpdateable)
	}
	return of
}

// Updateable reports whether instances of a plan may get another one.
func (s Service) Updateable(plan string) bool {
	updateable := s.of(plan).PlanUpdateable
	return updateable != nil && *updateable
}

// Has reports whether the service says that its instances of a plan have such parts.
func (s Service) Has(plan, part string) bool {
	if part == Bindings {
		bindable := s.of(plan).Bindable
		return bindable == nil || *bindable
	}
	var actions []string
	_ = json.Unmarshal(s.Metadata.Actions, &actions) // other metadata of that name is no promise
	return slices.Contains(actions, part)
}

// Catalog asks what the broker offers.
func (b Broker) Catalog(ctx context.Context) ([]Service, error) {
	var out struct {
		Services []Service `json:"services"`
	}
	_, _, err := b.ask(ctx, exchange{method: http.MethodGet, path: "/v2/catalog", out: &out})
	return out.Services, err
}

// Provision makes an instance, or finds the one that was made by the same request.
func (b Broker) Provision(ctx context.Context, r Request) (Answer, error) {
	return b.change(ctx, http.MethodPut, r.path()+"?accepts_incomplete=true", r, r.body())
}

// Update changes plan or parameters. A broker keeps parameters of which an update says nothing, so
// that one without any says that there are none.
func (b Broker) Update(ctx context.Context, r Request) (Answer, error) {
	body := r.body()
	if len(r.Parameters) == 0 {
		body["parameters"] = map[string]any{}
	}
	if r.PreviousPlan != "" {
		body["previous_values"] = map[string]any{"plan_id": r.PreviousPlan}
	}
	return b.change(ctx, http.MethodPatch, r.path()+"?accepts_incomplete=true", r, body)
}

// Make makes a part of an instance, or finds the one that was made by the same request.
func (b Broker) Make(ctx context.Context, r Request) (Answer, error) {
	return b.change(ctx, http.MethodPut, r.path()+"?accepts_incomplete=true", r, r.body())
}

// Fetch reads the credentials of a binding that was made asynchronously.
func (b Broker) Fetch(ctx context.Context, r Request) (Answer, error) {
	return b.change(ctx, http.MethodGet, r.path()+"?"+r.query(""), r, nil)
}

// Delete deprovisions an instance, or deletes a part of it.
func (b Broker) Delete(ctx context.Context, r Request) (Answer, error) {
	return b.change(ctx, http.MethodDelete, r.path()+"?accepts_incomplete=true&"+r.query(""), r, nil)
}

// LastOperation asks how an operation goes on.
func (b Broker) LastOperation(ctx context.Context, r Request, operation string) (Answer, error) {
	return b.change(ctx, http.MethodGet, r.path()+"/last_operation?"+r.query(operation), r, nil)
}

func (r Request) path() string {
	path := "/v2/service_instances/" + url.PathEscape(r.Instance)
	if r.Part != "" {
		path += "/" + r.Part + "/" + url.PathEscape(r.ID)
	}
	return path
}

func (r Request) query(operation string) string {
	values := url.Values{"service_id": {r.Service}, "plan_id": {r.Plan}}
	if operation != "" {
		values.Set("operation", operation)
	}
	return values.Encode()
}

func (r Request) body() map[string]any {
	body := map[string]any{"service_id": r.Service, "plan_id": r.Plan}
	if len(r.Parameters) > 0 {
		body["parameters"] = r.Parameters
	}
	if len(r.Context) > 0 {
		body["context"] = r.Context
	}
	if r.Part == Restores {
		body["backup_id"], body["backup_instance_id"] = r.Backup, r.BackupOf
	}
	if r.Part == "" { // required of provision, and ignored elsewhere
		body["organization_guid"], body["space_guid"] = fmt.Sprint(r.Context["clusterid"]), fmt.Sprint(r.Context["namespace"])
	}
	return body
}

// change sorts an answer by the specification's table of orphan mitigation.
func (b Broker) change(ctx context.Context, method, path string, r Request, body any) (Answer, error) {
	var said struct {
		Operation   string         `json:"operation"`
		State       string         `json:"state"`
		Description string         `json:"description"`
		Credentials map[string]any `json:"credentials"`
		Metadata    struct {
			Expires string `json:"expires_at"`
		} `json:"metadata"`
		failure
	}
	status, after, err := b.ask(ctx, exchange{method, path, r.Identity, body, &said})
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusGone && (method == http.MethodDelete || method == http.MethodGet) {
		return Answer{Done: true, Gone: true}, nil
	} else if err != nil {
		if ok {
			e.Orphan = e.Orphan && method == http.MethodPut
		}
		return Answer{}, err
	}
	return Answer{
		Done: status != http.StatusAccepted, Operation: said.Operation, State: said.State,
		Description: short(said.Description), Credentials: said.Credentials, Expires: short(said.Metadata.Expires),
		RetryAfter: after, Failure: said.read(),
	}, nil
}

// failure is a Failure as brokers write it: what they leave out is not so.
type failure struct {
	Repeatable *bool `json:"update_repeatable"`
	Usable     *bool `json:"instance_usable"`
}

func (f failure) read() Failure {
	return Failure{Final: f.Repeatable != nil && !*f.Repeatable, Unusable: f.Usable != nil && !*f.Usable}
}

// An exchange is a request to a broker, and where its answer goes.
type exchange struct {
	method, path string
	by           map[string]any // the originating identity; nil without one
	body, out    any
}

// ask sends a request and reads the answer.
func (b Broker) ask(ctx context.Context, x exchange) (int, time.Duration, error) {
	limit := b.Limit
	if limit == 0 {
		limit = timeLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var payload io.Reader
	if x.body != nil {
		text, err := json.Marshal(x.body)
		if err != nil {
			return 0, 0, err
		}
		payload = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, x.method, strings.TrimRight(b.URL, "/")+x.path, payload)
	if err != nil {
		return 0, 0, err
	}
	request.SetBasicAuth(b.Username, b.Password)
	request.Header.Set("X-Broker-Api-Version", version)
	request.Header.Set("Content-Type", "application/json")
	if x.by != nil {
		text, err := json.Marshal(x.by)
		if err != nil {
			return 0, 0, err
		}
		request.Header.Set("X-Broker-Api-Originating-Identity", "kubernetes "+base64.StdEncoding.EncodeToString(text))
	}
	client := http.Client{}
	if b.HTTP != nil {
		client = *b.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil { // its text has the URL, not the credentials
		return 0, 0, &Error{Description: "the broker does not answer: " + short(err.Error()), Orphan: true}
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerLimit+1))
	return read(response, text, err, x.out)
}

func read(response *http.Response, text []byte, failed error, out any) (int, time.Duration, error) {
	status := response.StatusCode
	after, _ := time.ParseDuration(response.Header.Get("Retry-After") + "s")
	after = min(max(after, 0), waitLimit)
	e := &Error{Status: status, RetryAfter: after, Orphan: status != http.StatusOK && status/100 == 2 || status/100 == 5}
	switch {
	case failed != nil || len(text) > answerLimit:
		e.Description = fmt.Sprintf("the answer ends early or is longer than %d bytes", answerLimit)
		return status, after, e
	case status != http.StatusOK && status != http.StatusCreated && status != http.StatusAccepted:
		var said struct {
			Error       string `json:"error"`
			Description string `json:"description"`
			failure
		}
		_ = json.Unmarshal(text, &said) // an answer without words has a status
		e.Code, e.Description, e.Failure = short(said.Error), short(said.Description), said.read()
		return status, after, e
	}
	var object map[string]any
	if json.Unmarshal(text, &object) != nil || object == nil || json.Unmarshal(text, out) != nil {
		e.Description = "the answer is not what the specification says"
		return status, after, e
	}
	return status, after, nil
}

// short bounds a broker's words, and makes one line of them.
func short(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > 512 {
		text = strings.ToValidUTF8(text[:512], "") + "…"
	}
	return text
}
