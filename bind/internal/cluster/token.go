// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A token is what anyone can read in a token of a service account. Of some nobody can
// tell anything.
type token struct {
	Expiry     int64 `json:"exp"`
	Kubernetes struct {
		// Secret is what the token is bound to: it dies with it.
		Secret struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"secret"`
	} `json:"kubernetes.io"`
}

func readToken(raw string) (t token) {
	parts := strings.Split(raw, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err != nil || json.Unmarshal(payload, &t) != nil {
		return token{}
	}
	return t
}

// ends is when the token ends; zero if it does not say.
func (t token) ends() time.Time {
	if t.Expiry == 0 {
		return time.Time{}
	}
	return time.Unix(t.Expiry, 0).UTC()
}
