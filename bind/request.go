// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ReadRequests reads APIServiceExportRequests from YAML or JSON, one or many
// documents. No other kind is accepted.
func ReadRequests(manifest []byte) ([]v1alpha1.APIServiceExportRequest, error) {
	var requests []v1alpha1.APIServiceExportRequest
	dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read requests: %w", err)
		}
		for _, item := range items(raw) {
			request, err := readRequest(item)
			if err != nil {
				return nil, err
			}
			requests = append(requests, *request)
		}
	}
	if len(requests) == 0 {
		return nil, errors.New("read requests: no APIServiceExportRequest found")
	}
	return requests, nil
}

// items returns those of a v1 List, or the one object that raw is, if any.
func items(raw []byte) []json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(raw, &list) == nil && list.Kind == "List" {
		return list.Items
	}
	return []json.RawMessage{raw}
}

func readRequest(raw []byte) (*v1alpha1.APIServiceExportRequest, error) {
	r := &v1alpha1.APIServiceExportRequest{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read request: not an APIServiceExportRequest: %w", err)
	}
	if r.APIVersion != v1alpha1.GroupVersion.String() || r.Kind != "APIServiceExportRequest" {
		return nil, fmt.Errorf("read request: kind %q, apiVersion %q is not an APIServiceExportRequest of %s", r.Kind, r.APIVersion, v1alpha1.GroupVersion)
	}
	if len(r.Spec.Resources) == 0 {
		return nil, fmt.Errorf("read request %q: it names no resource", r.Name)
	}
	return r, nil
}

// services lists what is going to be bound, in the order of the requests.
func services(requests []v1alpha1.APIServiceExportRequest) ([]v1alpha1.GroupResource, error) {
	var all []v1alpha1.GroupResource
	for _, r := range requests {
		for _, resource := range r.Spec.Resources {
			if err := checkService(resource.GroupResource); err != nil {
				return nil, err
			}
			if !slices.Contains(all, resource.GroupResource) {
				all = append(all, resource.GroupResource)
			}
		}
	}
	return all, nil
}

// A RequestError is the backend's refusal of an APIServiceExportRequest, or says what keeps
// the backend from an answer.
type RequestError struct {
	Request         string
	Reason, Message string // as the backend says; the reason is that of the condition ExportsReady
	Waits           bool   // for an answer, until ctx ended: the error is ErrNotReady too
}

// Error implements error.
func (e *RequestError) Error() string {
	if e.Waits {
		return strings.TrimSuffix(fmt.Sprintf("the backend has not answered request %s: %s", e.Request, e.Message), ": ")
	}
	return fmt.Sprintf("the backend refuses request %s: %s", e.Request, e.Message)
}

// Is implements what errors.Is asks for.
func (e *RequestError) Is(target error) bool { return e.Waits && target == ErrNotReady }

// refusal is what a request says of itself that is not granted.
func refusal(r *v1alpha1.APIServiceExportRequest) *RequestError {
	e := &RequestError{Request: r.Name, Message: r.Status.TerminalMessage}
	if c := v1alpha1.FindCondition(r.Status.Conditions, v1alpha1.ConditionExportsReady); c != nil {
		e.Reason = c.Reason
		if e.Message == "" {
			e.Message = c.Message
		}
	}
	return e
}

// A requester asks for exports in a tenant namespace.
type requester struct {
	progress
	dryRun DryRun
	tenant dynamic.Interface
	target *kubeconfig.Kubeconfig
}

// request makes the requests, waits for the answers, and returns the exports and what they
// claim, by service. In a dry run an export may be nil.
func (q *requester) request(ctx context.Context, requests []v1alpha1.APIServiceExportRequest) (exports map[string]*v1alpha1.APIServiceExport, claims map[string][]v1alpha1.PermissionClaim, err error) {
	exports, claims = map[string]*v1alpha1.APIServiceExport{}, map[string][]v1alpha1.PermissionClaim{}
	for _, r := range requests {
		if err := q.makeRequest(ctx, r); err != nil {
			return nil, nil, err
		}
		for _, resource := range r.Spec.Resources {
			export, err := q.export(ctx, resource.String())
			if err != nil {
				return nil, nil, fmt.Errorf("APIServiceExport %s: %w", resource, err)
			}
			exports[resource.String()] = export
			claims[resource.String()] = resource.PermissionClaims
			if export != nil {
				claims[resource.String()] = export.Spec.PermissionClaims
			}
		}
	}
	return exports, claims, nil
}

// there is the tenant namespace.
func (q *requester) there(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	return q.tenant.Resource(resource).Namespace(q.target.Namespace)
}

func (q *requester) makeRequest(ctx context.Context, r v1alpha1.APIServiceExportRequest) error {
	if q.dryRun == DryRunClient {
		return nil
	}
	name, err := q.createRequest(ctx, r)
	if fates.Is(err, fates.Forbidden, fates.Terminating) {
		return &RequestError{Request: r.Name, Reason: v1alpha1.ReasonNotAuthorized, Message: cluster.Explain(err)}
	}
	if err != nil {
		return fmt.Errorf("request %s in namespace %s of %s: %w", r.Name, q.target.Namespace, q.target.Server, err)
	}
	if q.dryRun == DryRunServer {
		return nil
	}
	return q.awaitRequest(ctx, name)
}

// untilKnown has a call retried while API servers may not know the rights of a new tenant, or the
// token of a new login.
func untilKnown(err error) bool {
	return fates.Is(err, fates.Forbidden, fates.Terminating, fates.Unauthorized)
}

// createRequest tries for a while.
func (q *requester) createRequest(ctx context.Context, r v1alpha1.APIServiceExportRequest) (name string, err error) {
	r.ObjectMeta = metav1.ObjectMeta{Name: r.Name, GenerateName: r.GenerateName}
	if r.Name == "" && r.GenerateName == "" {
		r.GenerateName = "export-"
	}
	create := func() error {
		made, err := q.there(cluster.APIServiceExportRequests).Create(ctx, cluster.Manifest(&r), metav1.CreateOptions{FieldManager: cluster.FieldManager, DryRun: q.dryRun.param()})
		if err == nil {
			name = made.GetName()
		}
		return err
	}
	err = retry(ctx, untilKnown, func() error {
		err := create()
		if fates.Is(err, fates.Exists) && r.Name != "" {
			r.GenerateName, r.Name = r.Name+"-", ""
			err = create()
		}
		return err
	})
	return name, err
}

func (q *requester) awaitRequest(ctx context.Context, name string) error {
	say, last := q.changes(), &RequestError{Request: name}
	err := until(ctx, q.there(cluster.APIServiceExportRequests), name, func(r *v1alpha1.APIServiceExportRequest) (bool, error) {
		switch {
		case r == nil:
			return false, &RequestError{Request: name, Message: "it was deleted before it was answered"}
		case r.Status.Phase == v1alpha1.RequestFailed:
			return false, refusal(r)
		case r.Status.Phase == v1alpha1.RequestSucceeded:
			return true, nil
		}
		last = refusal(r)
		say("Waiting for the backend to answer request " + name + cluster.Because(r.Status.Conditions))
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		last.Waits = true
		return last
	}
	return err
}

// export returns nil in a dry run where there is none.
func (q *requester) export(ctx context.Context, name string) (export *v1alpha1.APIServiceExport, err error) {
	if q.dryRun != "" {
		return cluster.Get[v1alpha1.APIServiceExport](ctx, q.there(cluster.APIServiceExports), name)
	}
	err = until(ctx, q.there(cluster.APIServiceExports), name, func(e *v1alpha1.APIServiceExport) (bool, error) {
		if e == nil {
			q.say("Waiting for the backend to publish %s", name)
		}
		export = e
		return e != nil, nil
	})
	return export, err
}
