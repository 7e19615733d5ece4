// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// MachineToken returns the access token that a client gets by client credentials
// with these scopes.
func (i *Issuer) MachineToken(client string, scopes ...string) (string, error) {
	if _, ok := i.opts.Clients[client]; !ok {
		return "", errors.New("no such client: " + client)
	}
	return i.sign(i.machineClaims(client, scopes))
}

// answerMachine is RFC 6749 section 4.4.
func (i *Issuer) answerMachine(w http.ResponseWriter, r *http.Request, id string) {
	client := i.opts.Clients[id]
	scopes := strings.Fields(r.PostFormValue("scope"))
	foreign := func(s string) bool { return !slices.Contains(client.Scopes, s) }
	switch {
	case client.Secret == "":
		writeError(w, http.StatusUnauthorized, "unauthorized_client", "Public client not allowed")
		return
	case slices.ContainsFunc(scopes, foreign):
		writeError(w, http.StatusBadRequest, "invalid_scope", "Invalid scopes: "+r.PostFormValue("scope"))
		return
	case len(scopes) == 0:
		scopes = client.Scopes
	}
	raw, err := i.sign(i.machineClaims(id, scopes))
	if err != nil {
		writeError(w, http.StatusInternalServerError, "server_error", err.Error())
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token": raw, "token_type": "Bearer", "expires_in": int(i.opts.TokenTTL.Seconds()), "scope": strings.Join(scopes, " "),
	})
}

func (i *Issuer) machineClaims(id string, scopes []string) map[string]any {
	now := i.opts.Now().Add(i.currentFaults().Skew)
	claims := map[string]any{
		"iss":       i.opts.URL,
		"sub":       id,
		"client_id": id,
		"iat":       now.Unix(),
		"exp":       now.Add(i.opts.TokenTTL).Unix(),
		"scope":     strings.Join(scopes, " "),
	}
	if audiences := i.opts.Clients[id].Audiences; audiences != nil {
		claims["aud"] = audiences
	}
	i.opts.Profile.adjustMachine(claims)
	return claims
}
