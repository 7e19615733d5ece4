// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"errors"
	"strings"
)

func (m *minter) machineToken(client string, scopes ...string) (string, error) {
	if _, ok := m.opts.Clients[client]; !ok {
		return "", errors.New("no such client: " + client)
	}
	return m.sign(m.machineClaims(client, scopes))
}

func (m *minter) machineClaims(id string, scopes []string) map[string]any {
	now := m.opts.Now().Add(m.currentFaults().Skew)
	claims := map[string]any{
		"iss":       m.opts.URL,
		"sub":       id,
		"client_id": id,
		"iat":       now.Unix(),
		"exp":       now.Add(m.opts.TokenTTL).Unix(),
		"scope":     strings.Join(scopes, " "),
	}
	if audiences := m.opts.Clients[id].Audiences; audiences != nil {
		claims["aud"] = audiences
	}
	m.opts.Profile.adjustMachine(claims)
	return claims
}
