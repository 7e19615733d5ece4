// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"slices"
	"strings"
)

// A Profile is the manner of a well-known issuer: its paths, its scopes, the grants
// that it knows, and its claims.
type Profile string

// The profiles beside the plain one, which knows every grant and puts all that it
// knows of a user into every token.
const (
	Dex      Profile = "dex"
	Keycloak Profile = "keycloak"
	Cognito  Profile = "cognito"
)

const (
	codeGrant   = "authorization_code"
	clientGrant = "client_credentials"
	deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"
)

type paths struct{ authorize, token, keys, device string }

func (p Profile) paths() paths {
	switch p {
	case Dex:
		return paths{authorize: "/auth", token: "/token", keys: "/keys", device: "/device/code"}
	case Keycloak:
		const base = "/protocol/openid-connect"
		return paths{authorize: base + "/auth", token: base + "/token", keys: base + "/certs", device: base + "/auth/device"}
	case Cognito:
		return paths{authorize: "/oauth2/authorize", token: "/oauth2/token", keys: "/.well-known/jwks.json"}
	default:
		return paths{authorize: "/authorize", token: "/token", keys: "/keys", device: "/device_authorization"}
	}
}

func (p Profile) grantTypes() []string {
	switch p {
	case Dex:
		return []string{codeGrant, deviceGrant}
	case Cognito:
		return []string{codeGrant, clientGrant}
	default:
		return []string{codeGrant, clientGrant, deviceGrant}
	}
}

// sendsIss reports whether callbacks have an iss parameter (RFC 9207).
func (p Profile) sendsIss() bool { return p == "" || p == Keycloak }

// scopes are those that an issuer knows if its options do not say otherwise.
func (p Profile) scopes() []string {
	if p == Cognito {
		return []string{"openid", "profile", "email", "phone"}
	}
	return []string{"openid", "profile", "email", "groups", "offline_access"}
}

// restrict takes out the claims that were not asked for.
func (p Profile) restrict(claims map[string]any, scopes []string) {
	if p == "" {
		return
	}
	for scope, names := range map[string][]string{
		"profile": {"name", "preferred_username"}, "email": {"email", "email_verified"}, "groups": {"groups"},
	} {
		if slices.Contains(scopes, scope) {
			continue
		}
		for _, name := range names {
			delete(claims, name)
		}
	}
}

// adjust gives the claims of an ID token the issuer's own form.
func (p Profile) adjust(claims map[string]any) {
	groups, _ := claims["groups"].([]string)
	switch p {
	case Keycloak:
		claims["typ"], claims["azp"], claims["auth_time"] = "ID", claims["aud"], claims["iat"]
		claims["acr"], claims["sid"] = "1", "5c2f0a52-6e0f-4a36-9a0e-6d2a2b0f1c11"
		if groups != nil {
			claims["groups"] = fullPaths(groups)
		}
	case Cognito:
		claims["token_use"], claims["auth_time"], claims["cognito:username"] = "id", claims["iat"], claims["preferred_username"]
		if groups != nil {
			claims["cognito:groups"] = groups
		}
		delete(claims, "groups")
	default:
	}
}

// fullPaths are the names of groups in a tree.
func fullPaths(groups []string) []string {
	full := make([]string, len(groups))
	for i, g := range groups {
		full[i] = "/" + g
	}
	return full
}

// adjustMachine gives the claims of a machine's access token the issuer's own form.
func (p Profile) adjustMachine(claims map[string]any) {
	id := claims["client_id"].(string)
	switch p {
	case Keycloak:
		claims["typ"], claims["azp"], claims["sub"] = "Bearer", id, "b3f5b6f2-"+id
		claims["preferred_username"] = "service-account-" + id
		claims["scope"] = strings.TrimSpace("profile email " + claims["scope"].(string))
		if _, ok := claims["aud"]; !ok {
			claims["aud"] = "account"
		}
	case Cognito:
		claims["token_use"], claims["version"] = "access", 2
		delete(claims, "aud")
	default:
	}
}
