// SPDX-License-Identifier: Apache-2.0

package testissuer

// A Profile is the manner of a well-known issuer: its paths and its claims.
type Profile string

// The profiles beside the plain one.
const (
	Dex      Profile = "dex"
	Keycloak Profile = "keycloak"
)

type paths struct{ authorize, token, keys string }

func (p Profile) paths() paths {
	switch p {
	case Dex:
		return paths{authorize: "/auth", token: "/token", keys: "/keys"}
	case Keycloak:
		const base = "/protocol/openid-connect"
		return paths{authorize: base + "/auth", token: base + "/token", keys: base + "/certs"}
	default:
		return paths{authorize: "/authorize", token: "/token", keys: "/keys"}
	}
}

// sendsIss reports whether callbacks have an iss parameter (RFC 9207).
func (p Profile) sendsIss() bool { return p != Dex }

func (p Profile) adjust(claims map[string]any) {
	if p != Keycloak {
		return
	}
	claims["typ"], claims["azp"], claims["auth_time"] = "ID", claims["aud"], claims["iat"]
	if groups, ok := claims["groups"].([]string); ok {
		full := make([]string, len(groups))
		for i, g := range groups {
			full[i] = "/" + g
		}
		claims["groups"] = full
	}
}
