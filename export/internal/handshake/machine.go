// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A machineRequest is what a machine asks for, in JSON.
type machineRequest struct {
	ClusterID string                   `json:"clusterID"`
	APIs      []v1alpha1.GroupResource `json:"apis"`
}

// machines bind without a person.
type machines struct {
	opts     *Options
	visitors *visitors
	pages    *renderer
	limits   *limits
	binder   *binder
}

// bind is the whole handshake of a machine in one request: it brings an
// access token of its issuer and gets a BindingResponse.
func (h *machines) bind(w http.ResponseWriter, r *http.Request) {
	id, err := h.identity(r)
	if err == nil && h.limits.subject(w, r, id) {
		return
	}
	var response *v1alpha1.BindingResponse
	if err == nil {
		response, err = h.binding(r, id)
	}
	if err != nil {
		h.pages.refuseJSON(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, response)
}

func (h *machines) binding(r *http.Request, id *auth.Identity) (*v1alpha1.BindingResponse, error) {
	asked, services, err := parseMachineRequest(r)
	if err != nil {
		return nil, err
	}
	s := &session{Identity: *id, Login: login{Cluster: asked.ClusterID}}
	tenant, err := h.binder.obtain(r.Context(), s, services)
	if err != nil {
		return nil, err
	}
	response, err := h.binder.response(r.Context(), &grant{Tenant: tenant, Services: services, Identity: s.account()})
	if err != nil {
		return nil, err
	}
	response.Kubeconfig, err = h.opts.Tenants.Credentials.HandOut(r.Context(), tenant)
	return response, err
}

// identity says whose token a request brings.
func (h *machines) identity(r *http.Request) (*auth.Identity, error) {
	if len(h.opts.Machines) == 0 {
		return nil, &OAuthError{
			Status: http.StatusNotFound, Code: "unsupported_grant_type", Description: "this backend lets no machines in",
			Next: "bind as a person: kubectl bind " + h.opts.External.String() + "; or ask the platform team to accept an audience for machines",
		}
	}
	raw := auth.BearerToken(r)
	if raw == "" {
		return nil, &OAuthError{
			Status: http.StatusUnauthorized, Authenticate: "Bearer", Code: "invalid_request", Description: "there is no access token",
			Next: "send the header Authorization: Bearer TOKEN, with a token that the issuer gave you for client credentials",
		}
	}
	id, err := h.opts.Machines.VerifyMachine(r.Context(), raw, h.opts.MachineScopes...)
	if err != nil {
		return nil, h.refuse(r, err)
	}
	h.opts.Hooks.login(LoginSucceeded)
	return id, nil
}

func (h *machines) refuse(r *http.Request, err error) error {
	refused := &OAuthError{Description: err.Error(), Code: "invalid_token", Next: "get a new token for this backend from the issuer"}
	refused.Status, refused.Authenticate = auth.BearerChallenge(err)
	switch {
	case errors.Is(err, auth.ErrUnavailable):
		h.opts.Hooks.login(LoginUnavailable)
		refused.Code, refused.Description, refused.Next = CodeUnavailable, "the issuer does not answer", "try again in a minute"
		return refused
	case errors.Is(err, auth.ErrScope):
		refused.Code = "insufficient_scope"
		refused.Next = "ask the issuer for a token with the scopes " + strings.Join(h.opts.MachineScopes, " ")
	}
	h.opts.Hooks.login(LoginRefused)
	h.visitors.refused(r, "machine refused", "reason", refused.Code, "detail", refused.Description)
	return refused
}

// parseMachineRequest returns what is asked for and the names of the services.
func parseMachineRequest(r *http.Request) (*machineRequest, []string, error) {
	wrong := &OAuthError{Code: "invalid_request", Next: `send {"clusterID": "NAME", "apis": [{"group": "GROUP", "resource": "RESOURCE"}]}`}
	asked := &machineRequest{}
	if err := json.NewDecoder(r.Body).Decode(asked); err != nil {
		wrong.Description = "the body is not the JSON that is expected, or too long"
		return nil, nil, wrong
	}
	var services []string
	for _, api := range asked.APIs {
		services = append(services, api.String())
	}
	slices.Sort(services)
	services = slices.Compact(services)
	switch {
	case !clusterPattern.MatchString(asked.ClusterID):
		wrong.Description = "clusterID is missing or malformed"
	case len(services) == 0 || len(services) > offer.MaxAsked:
		wrong.Description = fmt.Sprintf("apis must have 1 to %d entries", offer.MaxAsked)
	case slices.ContainsFunc(services, func(s string) bool { return !servicePattern.MatchString(s) }):
		wrong.Description = "an entry of apis is malformed"
	default:
		return asked, services, nil
	}
	return nil, nil, wrong
}
