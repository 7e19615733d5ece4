// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Token is what anyone can read in a token of a service account; zero where
// a token is of another kind.
type Token struct {
	Expiry     int64 `json:"exp"`
	Kubernetes struct {
		// Secret is what the token is bound to: it dies with it.
		Secret struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"secret"`
	} `json:"kubernetes.io"`
}

// ReadToken decodes a token without judging its signature.
func ReadToken(raw string) (t Token) {
	parts := strings.Split(raw, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err != nil || json.Unmarshal(payload, &t) != nil {
		return Token{}
	}
	return t
}

// Ends is when the token ends; zero if it does not say.
func (t Token) Ends() time.Time {
	if t.Expiry == 0 {
		return time.Time{}
	}
	return time.Unix(t.Expiry, 0).UTC()
}
