// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	// keysLife is how long a key counts that an issuer may have taken back since.
	keysLife = 10 * time.Minute
	// maxKeys and maxModulus bound what it costs to try the keys of an issuer on one
	// token, which grows with the cube of their size: the modulus of an RSA key of 8192
	// bits, more than which TLS does not take either, has 1366 characters.
	maxKeys, maxModulus = 50, 1400
)

// newKeySet returns the keys at a URL, which are fetched when a token needs them.
func newKeySet(ctx context.Context, client *http.Client, url string) oidc.KeySet {
	// It keeps its context for later requests, so the first one's must not end them.
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.WithoutCancel(ctx), client), url)
}

// ofKeys returns a client that fetches keys.
func ofKeys(client *http.Client) *http.Client {
	c := *client
	c.Transport = keysTransport{c.Transport}
	return &c
}

// A keysTransport takes nothing but keys for an answer, and no more than can be tried.
type keysTransport struct{ base http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t keysTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest {
		return resp, err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err == nil {
		err = checkKeys(body)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// checkKeys looks at a JWK Set (RFC 7517 section 5) before anything is computed with it.
func checkKeys(data []byte) error {
	var set struct {
		Keys []map[string]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return errors.New("its answer is no set of keys")
	}
	if len(set.Keys) > maxKeys {
		return fmt.Errorf("it has %d keys, more than the %d that are tried", len(set.Keys), maxKeys)
	}
	for _, key := range set.Keys {
		switch d := key["d"]; {
		case len(key["n"]) > maxModulus:
			return errors.New("one of its RSA keys is longer than 8192 bits")
		case d != nil && string(d) != "null":
			return errors.New("one of its keys is a private key")
		}
	}
	return nil
}

// keySet remembers why a signature was refused, since go-oidc flattens it.
type keySet struct {
	oidc.KeySet
	err error
}

// VerifySignature implements [oidc.KeySet].
func (k *keySet) VerifySignature(ctx context.Context, jwt string) (payload []byte, err error) {
	payload, k.err = k.KeySet.VerifySignature(ctx, jwt)
	return payload, k.err
}
