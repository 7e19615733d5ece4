// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A binder says what a person may bind, and binds it.
type binder struct{ opts *Options }

// An offering is what a person may bind, and why not what else was asked for.
type offering struct {
	Allowed []offer.Service
	Unknown []string // asked for, but not on offer
	Refused []string // asked for, but not for this person
	Absent  []string // asked for, but its API is not there at the moment
	Unfit   []string // asked for, but App Clusters cannot have it as it is offered

	Withheld []string // what the person may bind, and cannot have, each with the reason
}

// offer says of all services whether the person may bind them, and of those that were
// asked for why not.
func (h *binder) offer(ctx context.Context, s *session, asked []string) (*offering, error) {
	return h.sort(ctx, s, asked, func(offer.Service) bool { return true })
}

// check is offer for what was asked for alone, and for all services if a part of that
// cannot be had.
func (h *binder) check(ctx context.Context, s *session, asked []string) (*offering, error) {
	o, err := h.sort(ctx, s, asked, func(service offer.Service) bool { return slices.Contains(asked, service.Name()) })
	if err != nil || o.missing() == 0 {
		return o, err
	}
	return h.offer(ctx, s, asked)
}

// sort looks at the services of the catalogue that count.
func (h *binder) sort(ctx context.Context, s *session, asked []string, counts func(offer.Service) bool) (*offering, error) {
	services, err := h.opts.Catalog.Services(ctx)
	if err != nil {
		return nil, err
	}
	o, known := &offering{}, map[string]*[]string{}
	for _, service := range services {
		if !counts(service) {
			continue
		}
		why, err := h.judge(ctx, s, service, o)
		if err != nil {
			return nil, err
		}
		known[service.Name()] = why
		switch why {
		case nil:
			o.Allowed = append(o.Allowed, service)
		case &o.Unfit:
			o.Withheld = append(o.Withheld, service.Name()+" is not fit for App Clusters as it is offered")
		case &o.Absent:
			o.Withheld = append(o.Withheld, service.Name()+" is not there at the moment")
		}
	}
	for _, name := range asked {
		why, ok := known[name]
		switch {
		case !ok:
			o.Unknown = append(o.Unknown, name)
		case why != nil:
			*why = append(*why, name)
		}
	}
	return o, nil
}

// judge returns the list of o in which a service belongs that cannot be had, or nil.
func (h *binder) judge(ctx context.Context, s *session, service offer.Service, o *offering) (*[]string, error) {
	switch err := h.opts.Authorizer.Authorize(ctx, &s.Identity, service); {
	case errors.Is(err, offer.ErrForbidden):
		return &o.Refused, nil
	case err != nil:
		return nil, err
	case !service.Available():
		return &o.Absent, nil
	case h.opts.Prefixed.Unfit(service) != "":
		return &o.Unfit, nil
	}
	return nil, nil //nolint:nilnil // it can be had
}

// names are the names of the services that the person may bind.
func (o *offering) names() []string {
	var names []string
	for _, s := range o.Allowed {
		names = append(names, s.Name())
	}
	return names
}

// missing reports how many of the services that were asked for cannot be had.
func (o *offering) missing() int {
	return len(o.Unknown) + len(o.Refused) + len(o.Absent) + len(o.Unfit)
}

// problem says why services that were asked for cannot be had.
func (o *offering) problem() problem {
	p := problem{Offer: few(o.names()), Next: "Choose from what is on offer, or ask the platform team."}
	switch {
	case len(o.Refused) > 0:
		p.Status, p.Title, p.Items = http.StatusForbidden, "You may not bind this", o.Refused
		p.What = "The platform team has not allowed you to bind"
	case len(o.Unknown) > 0:
		p.Status, p.Title, p.Items = http.StatusNotFound, "This is not on offer", o.Unknown
		p.What = "This platform does not offer"
	case len(o.Unfit) > 0:
		p.Status, p.Title, p.Items = http.StatusConflict, "This is not for App Clusters", o.Unfit
		p.What, p.Next = "As it is offered here, App Clusters cannot have", offer.AdviceUnfit
	default:
		p.Status, p.Title, p.Items = http.StatusConflict, "This is not available now", o.Absent
		p.What = "On offer, but not there at the moment"
	}
	p.Items = few(p.Items)
	return p
}

// few cuts a list to what one takes in at a glance, and what fits a cookie.
func few(names []string) []string {
	const limit, longest = 8, 400
	n, size := 0, 0
	for n < min(len(names), limit) && (n == 0 || size+len(names[n]) <= longest) {
		size += len(names[n])
		n++
	}
	if n == len(names) {
		return names
	}
	return append(slices.Clone(names[:n]), "…")
}

// answer is problem for a program, RFC 6749 section 4.1.2.1.
func (o *offering) answer() *auth.Error {
	p := o.problem()
	code := "access_denied"
	if len(o.Refused) == 0 {
		code = "invalid_scope"
	}
	description := p.What + " " + strings.Join(p.Items, ", ")
	if len(p.Offer) > 0 {
		description += "; on offer: " + strings.Join(p.Offer, ", ")
	}
	return &auth.Error{Code: code, Description: description}
}

// problems are those of each kind of what cannot be had.
func (o *offering) problems() (all []problem) {
	for _, part := range []*offering{{Refused: o.Refused}, {Unknown: o.Unknown}, {Unfit: o.Unfit}, {Absent: o.Absent}} {
		if part.missing() > 0 {
			all = append(all, part.problem())
		}
	}
	return all
}

// offerError says that services cannot be had.
type offerError struct{ offer *offering }

func (e *offerError) Error() string { return e.offer.answer().Error() }

func (e *offerError) oauth() *OAuthError {
	p, answer := e.offer.problem(), e.offer.answer()
	return &OAuthError{Status: p.Status, Code: answer.Code, Description: answer.Description, Next: p.Next}
}

// obtain makes or finds the tenant of a session, with more services. The error is an
// *offerError where one of them cannot be had; then nothing was made.
func (h *binder) obtain(ctx context.Context, s *session, chosen []string) (namespace string, err error) {
	o, err := h.check(ctx, s, chosen)
	if err != nil {
		return "", err
	}
	who := append(s.who(), "services", chosen)
	if o.missing() > 0 {
		audit.Record(ctx, "bind refused", append(who, "reason", o.answer().Code)...)
		return "", &offerError{o}
	}
	namespace, err = h.opts.Tenants.Bind(ctx, tenant.Record{
		Identity: s.Identity, Cluster: s.Login.Cluster, Services: chosen,
	})
	if err == nil {
		audit.Record(ctx, "bound", append(who, "tenant", namespace)...)
	}
	return namespace, err
}

// tenantOf returns the tenant namespace of a person's App Cluster and the services that were
// chosen for it, if there is one. Who only looks does without where it cannot be read.
func (h *binder) tenantOf(ctx context.Context, id *auth.Identity, cluster string) (namespace string, chosen []string) {
	if cluster == "" {
		return "", nil
	}
	namespace, record, err := h.opts.Tenants.Of(ctx, tenant.Holder{Issuer: id.Issuer, Subject: id.Subject, Cluster: cluster})
	if err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("what was bound before is not shown", "reason", err.Error())
		return "", nil
	}
	return namespace, record.Services
}

// told is the answer to a CLI that asks for the offer.
func (h *binder) told(ctx context.Context, s *session) (*v1alpha1.OfferResponse, error) {
	o, err := h.offer(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	id := s.Identity
	response := &v1alpha1.OfferResponse{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "OfferResponse"},
		Authentication: v1alpha1.BindingResponseAuthentication{
			OAuth2CodeGrant: &v1alpha1.BindingResponseOAuth2CodeGrant{SessionID: s.Login.State, ID: s.account()},
		},
		Person:   v1alpha1.Person{Issuer: id.Issuer, Subject: id.Subject, Name: id.Name, Email: id.Email, Groups: id.Groups},
		Services: []v1alpha1.OfferedService{},
	}
	namespace, chosen := h.tenantOf(ctx, &id, s.Login.Cluster)
	response.Tenant, response.Withheld = namespace, o.Withheld
	for _, service := range o.Allowed {
		response.Services = append(response.Services, v1alpha1.OfferedService{
			Name: service.Name(), Title: service.Title, Description: service.Description, DocumentationURL: option{Service: service}.Documentation(),
			Categories: service.Categories, Kind: service.Kind, Versions: service.Versions, PermissionClaims: service.PermissionClaims,
			Chosen: slices.Contains(chosen, service.Name()),
		})
	}
	return response, nil
}

// response is what the CLI gets beside the tenant's credential: the requests to make.
func (h *binder) response(ctx context.Context, g *grant) (*v1alpha1.BindingResponse, error) {
	services, err := h.opts.Catalog.Services(ctx)
	if err != nil {
		return nil, err
	}
	response := &v1alpha1.BindingResponse{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "BindingResponse"},
		Authentication: v1alpha1.BindingResponseAuthentication{
			OAuth2CodeGrant: &v1alpha1.BindingResponseOAuth2CodeGrant{SessionID: g.Login.State, ID: g.Identity},
		},
	}
	for _, name := range g.Services {
		s, ok := offer.Find(services, name)
		if !ok {
			return nil, invalidGrant(name + " is not on offer any more")
		}
		request, err := exportRequest(s)
		if err != nil {
			return nil, err
		}
		response.Requests = append(response.Requests, request)
	}
	return response, nil
}

func exportRequest(s offer.Service) (runtime.RawExtension, error) {
	data, err := json.Marshal(v1alpha1.APIServiceExportRequestResponse{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceExportRequest"},
		ObjectMeta: v1alpha1.NameObjectMeta{Name: s.Name()},
		Spec: v1alpha1.APIServiceExportRequestSpec{Resources: []v1alpha1.APIServiceExportRequestResource{{
			GroupResource:    v1alpha1.GroupResource{Group: s.Resource.Group, Resource: s.Resource.Resource},
			Versions:         s.Versions,
			PermissionClaims: s.PermissionClaims,
		}}},
	})
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("encode request for %s: %w", s.Name(), err)
	}
	return runtime.RawExtension{Raw: data}, nil
}
