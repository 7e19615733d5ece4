// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// BindingProviderAPIVersion is the apiVersion of a BindingProvider on the wire: it
// has no group.
const BindingProviderAPIVersion = "v1alpha1"

// MethodOAuth2CodeGrant is the authentication method of every backend.
const MethodOAuth2CodeGrant = "OAuth2CodeGrant"

// BindingProvider is a backend's discovery document, the body of GET /export.
//
// +kubebuilder:object:root=true
type BindingProvider struct {
	metav1.TypeMeta `json:",inline"`

	// version of the backend, a semantic version such as v1.4.0.
	Version string `json:"version,omitempty"`
	// providerPrettyName is how the backend calls itself.
	ProviderPrettyName string `json:"providerPrettyName,omitempty"`
	// authenticationMethods that the backend knows.
	AuthenticationMethods []AuthenticationMethod `json:"authenticationMethods,omitempty"`
}

// AuthenticationMethod is one way to log in.
type AuthenticationMethod struct {
	// method is MethodOAuth2CodeGrant.
	Method string `json:"method,omitempty"`
	// oauth2CodeGrant is set for MethodOAuth2CodeGrant.
	OAuth2CodeGrant *OAuth2CodeGrant `json:"oauth2CodeGrant,omitempty"`
}

// OAuth2CodeGrant says where a login begins and ends.
type OAuth2CodeGrant struct {
	// authenticatedURL is the absolute URL at which the browser begins.
	AuthenticatedURL string `json:"authenticatedURL"`
	// tokenURL is where the one-time code is redeemed (RFC 6749 §3.2, with PKCE,
	// RFC 7636). Empty for a backend that answers through the browser.
	TokenURL string `json:"tokenURL,omitempty"`
	// deviceURL is where a program on a machine without a browser begins a login that
	// a person completes on another device (RFC 8628 §3.1). Empty for a backend that
	// cannot do that.
	DeviceURL string `json:"deviceURL,omitempty"`
	// issuer is the value of the iss parameter of the redirect (RFC 9207).
	Issuer string `json:"issuer,omitempty"`
	// scopesSupported are the values of the scope parameter that the backend knows beside
	// its absence, which asks to bind (RFC 8414 §2): ScopeOffer.
	ScopesSupported []string `json:"scopesSupported,omitempty"`
}

// ScopeOffer is the scope of a login that asks what is on offer for a person, and who the
// person is. It makes no tenant and hands out no credential; an OfferResponse answers it.
const ScopeOffer = "offer"

// OfferResponse is what a login with ScopeOffer ends with.
type OfferResponse struct {
	metav1.TypeMeta `json:",inline"`

	// authentication repeats the login that this answers.
	Authentication BindingResponseAuthentication `json:"authentication,omitempty"`
	// person who has logged in.
	Person Person `json:"person"`
	// tenant namespace of the person's App Cluster that asks; empty if there is none.
	Tenant string `json:"tenant,omitempty"`
	// services that the person may bind.
	Services []OfferedService `json:"services"`
	// withheld are services that the person may bind and that cannot be had as they are
	// offered, each with the reason.
	Withheld []string `json:"withheld,omitempty"`
}

// Person is whom an issuer vouches for.
type Person struct {
	// issuer and subject tell persons apart.
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	// name, email and groups are as the issuer says.
	Name   string   `json:"name,omitempty"`
	Email  string   `json:"email,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// OfferedService is an API that a person may bind.
type OfferedService struct {
	// name is "<resource>.<group>".
	Name string `json:"name"`
	// title, description, documentationURL and categories are for people.
	Title            string   `json:"title,omitempty"`
	Description      string   `json:"description,omitempty"`
	DocumentationURL string   `json:"documentationURL,omitempty"`
	Categories       []string `json:"categories,omitempty"`
	// kind and versions of the API.
	Kind     string   `json:"kind,omitempty"`
	Versions []string `json:"versions,omitempty"`
	// permissionClaims are what the service wants to do in the App Cluster.
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
	// chosen at a login before, for the App Cluster that asks.
	Chosen bool `json:"chosen,omitempty"`
}

// BindingResponse is what a login ends with: the credential of the tenant and the
// requests to make with it.
//
// +kubebuilder:object:root=true
type BindingResponse struct {
	metav1.TypeMeta `json:",inline"`

	// authentication repeats the login that this answers.
	Authentication BindingResponseAuthentication `json:"authentication,omitempty"`
	// kubeconfig for the tenant namespace.
	Kubeconfig []byte `json:"kubeconfig"`
	// requests are APIServiceExportRequests to create in the tenant namespace.
	Requests []runtime.RawExtension `json:"requests,omitempty"`
}

// BindingResponseAuthentication is the login that a BindingResponse answers.
type BindingResponseAuthentication struct {
	// oauth2CodeGrant is set after a login in the browser.
	OAuth2CodeGrant *BindingResponseOAuth2CodeGrant `json:"oauth2CodeGrant,omitempty"`
}

// BindingResponseOAuth2CodeGrant is a login in the browser.
type BindingResponseOAuth2CodeGrant struct {
	// sid is the session identifier that the client chose.
	SessionID string `json:"sid"`
	// id is "<issuer>/<subject>" of the user, for people to read.
	ID string `json:"id"`
}

// APIServiceExportRequestResponse is an APIServiceExportRequest inside a
// BindingResponse: its metadata is only a name. Its kind on the wire is
// APIServiceExportRequest.
type APIServiceExportRequestResponse struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the request.
	ObjectMeta NameObjectMeta `json:"metadata"`
	// spec of the request.
	Spec APIServiceExportRequestSpec `json:"spec"`
	// status is empty.
	Status APIServiceExportRequestStatus `json:"status"`
}

// NameObjectMeta is metadata that is only a name.
type NameObjectMeta struct {
	// name of the object.
	Name string `json:"name,omitempty"`
}
