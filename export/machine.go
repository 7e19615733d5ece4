// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A machineRequest is what a machine asks for, in JSON.
type machineRequest struct {
	ClusterID string                   `json:"clusterID"`
	APIs      []v1alpha1.GroupResource `json:"apis"`
}

// bindMachine is the whole handshake of a machine in one request: it brings an
// access token of its issuer and gets a BindingResponse.
func (h *handler) bindMachine(w http.ResponseWriter, r *http.Request) {
	id, err := h.machine(r)
	if err == nil && h.limitSubject(w, r, id) {
		return
	}
	var response *v1alpha1.BindingResponse
	if err == nil {
		response, err = h.machineBinding(r, id)
	}
	if err != nil {
		h.refuseJSON(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, response)
}

func (h *handler) machineBinding(r *http.Request, id *auth.Identity) (*v1alpha1.BindingResponse, error) {
	asked, services, err := parseMachineRequest(r)
	if err != nil {
		return nil, err
	}
	s := &session{Identity: *id, Login: login{Cluster: asked.ClusterID}}
	tenant, err := h.obtain(r.Context(), s, services)
	if err != nil {
		return nil, err
	}
	response, err := h.response(r.Context(), &grant{Tenant: tenant, Services: services, Identity: s.account()})
	if err != nil {
		return nil, err
	}
	response.Kubeconfig, err = h.tenants.Credentials.HandOut(r.Context(), tenant)
	return response, err
}

// machine says whose token a request brings.
func (h *handler) machine(r *http.Request) (*auth.Identity, error) {
	if len(h.opts.Handshake.Machines) == 0 {
		return nil, &oauthError{
			Status: http.StatusNotFound, Code: "unsupported_grant_type", Description: "this backend lets no machines in",
			Next: "bind as a person: kubectl bind " + h.external.String() + "; or ask the platform team to accept an audience for machines",
		}
	}
	raw := auth.BearerToken(r)
	if raw == "" {
		return nil, &oauthError{
			Status: http.StatusUnauthorized, Authenticate: "Bearer", Code: "invalid_request", Description: "there is no access token",
			Next: "send the header Authorization: Bearer TOKEN, with a token that the issuer gave you for client credentials",
		}
	}
	id, err := h.opts.Handshake.Machines.VerifyMachine(r.Context(), raw, h.opts.Handshake.MachineScopes...)
	if err != nil {
		return nil, h.refuseMachine(r, err)
	}
	h.opts.Handshake.Hooks.login(LoginSucceeded)
	return id, nil
}

func (h *handler) refuseMachine(r *http.Request, err error) error {
	refused := &oauthError{Description: err.Error(), Code: "invalid_token", Next: "get a new token for this backend from the issuer"}
	refused.Status, refused.Authenticate = auth.BearerChallenge(err)
	switch {
	case errors.Is(err, auth.ErrUnavailable):
		h.opts.Handshake.Hooks.login(LoginUnavailable)
		refused.Code, refused.Description, refused.Next = codeUnavailable, "the issuer does not answer", "try again in a minute"
		return refused
	case errors.Is(err, auth.ErrScope):
		refused.Code = "insufficient_scope"
		refused.Next = "ask the issuer for a token with the scopes " + strings.Join(h.opts.Handshake.MachineScopes, " ")
	}
	h.opts.Handshake.Hooks.login(LoginRefused)
	h.refused(r, "machine refused", "reason", refused.Code, "detail", refused.Description)
	return refused
}

// parseMachineRequest returns what is asked for and the names of the services.
func parseMachineRequest(r *http.Request) (*machineRequest, []string, error) {
	wrong := &oauthError{Code: "invalid_request", Next: `send {"clusterID": "NAME", "apis": [{"group": "GROUP", "resource": "RESOURCE"}]}`}
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

// offerError says that services cannot be had.
type offerError struct{ offer *offering }

func (e *offerError) Error() string { return e.offer.answer().Error() }

// obtain makes or finds the tenant of a session, with more services. The error is an
// *offerError where one of them cannot be had; then nothing was made.
func (h *handler) obtain(ctx context.Context, s *session, chosen []string) (namespace string, err error) {
	o, err := h.offerTo(ctx, s, chosen)
	if err != nil {
		return "", err
	}
	who := append(s.who(), "services", chosen)
	if o.missing() > 0 {
		audit.Record(ctx, "bind refused", append(who, "reason", o.answer().Code)...)
		return "", &offerError{o}
	}
	namespace, err = h.tenants.Bind(ctx, tenant.Record{
		Identity: s.Identity, Cluster: s.Login.Cluster, Services: chosen,
	})
	if err == nil {
		audit.Record(ctx, "bound", append(who, "tenant", namespace)...)
	}
	return namespace, err
}
