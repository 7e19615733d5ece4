// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

// A minter makes the tokens of an issuer.
type minter struct {
	opts *Options

	mu     sync.Mutex
	key    key
	faults Faults
}

func (m *minter) idToken(user, audience string) (string, error) {
	if _, ok := m.opts.Users[user]; !ok {
		return "", errors.New("no such user: " + user)
	}
	return m.sign(m.claims(user, audience))
}

func (m *minter) accessToken(user, audience string) (string, error) {
	if _, ok := m.opts.Users[user]; !ok {
		return "", errors.New("no such user: " + user)
	}
	claims := m.claims(user, audience)
	claims["client_id"] = user
	return m.signAs("at+jwt", claims)
}

func (m *minter) rotate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.key = newKey(m.opts.Algorithm)
}

func (m *minter) currentKey() key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key
}

func (m *minter) claims(name, audience string) map[string]any {
	user, now := m.opts.Users[name], m.opts.Now().Add(m.currentFaults().Skew)
	claims := map[string]any{
		"iss":                m.opts.URL,
		"sub":                cmp.Or(user.Subject, name),
		"aud":                audience,
		"iat":                now.Unix(),
		"exp":                now.Add(m.opts.TokenTTL).Unix(),
		"preferred_username": name,
	}
	if user.Name != "" {
		claims["name"] = user.Name
	}
	if user.Email != "" {
		claims["email"], claims["email_verified"] = user.Email, !user.Unverified
	}
	if user.Groups != nil {
		claims["groups"] = user.Groups
	}
	m.opts.Profile.adjust(claims)
	return claims
}

// accessHash is at_hash (OpenID Connect Core section 3.1.3.6).
func (m *minter) accessHash(access string) string {
	if m.opts.Algorithm == string(jose.EdDSA) {
		sum := sha512.Sum512([]byte(access))
		return base64.RawURLEncoding.EncodeToString(sum[:32])
	}
	sum := sha256.Sum256([]byte(access))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

func (m *minter) sign(claims map[string]any) (string, error) { return m.signAs("JWT", claims) }

// signAs applies the faults of tokens last, so that they win.
func (m *minter) signAs(kind string, claims map[string]any) (string, error) {
	f, k := m.currentFaults(), m.currentKey()
	for name, value := range f.Claims {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signing := jose.SigningKey{Algorithm: k.algorithm, Key: jose.JSONWebKey{Key: k.private, KeyID: k.id}}
	switch {
	case f.Algorithm == "none":
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(payload) + ".", nil
	case f.Algorithm != "":
		signing = jose.SigningKey{Algorithm: jose.SignatureAlgorithm(f.Algorithm), Key: k.symmetric()}
	case f.WrongKey:
		signing.Key = jose.JSONWebKey{Key: newKey(m.opts.Algorithm).private, KeyID: k.id}
	}
	options := &jose.SignerOptions{}
	if kind = cmp.Or(f.Type, kind); kind != Absent {
		options = options.WithType(jose.ContentType(kind))
	}
	signer, err := jose.NewSigner(signing, options)
	if err != nil {
		return "", err
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return jws.CompactSerialize()
}

type key struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
}

func (k key) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: string(k.algorithm), Use: "sig"}
}

// symmetric is a key for a MAC, which no issuer should publish.
func (k key) symmetric() jose.JSONWebKey {
	return jose.JSONWebKey{Key: []byte(k.id + k.id), KeyID: k.id, Use: "sig"}
}

func newKey(algorithm string) key {
	k := key{id: rand.Text(), algorithm: jose.SignatureAlgorithm(algorithm)}
	var err error
	switch k.algorithm {
	case jose.ES256:
		k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.RS256:
		k.private, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.EdDSA:
		_, k.private, err = generateEd25519()
	default:
		panic("testissuer: no such algorithm: " + algorithm)
	}
	if err != nil {
		panic(err)
	}
	return k
}

func generateEd25519() (crypto.PublicKey, crypto.Signer, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	return public, private, err
}

// selfSigned returns a server's configuration for loopback addresses and the PEM
// certificate that its clients trust.
func selfSigned() (*tls.Config, []byte) {
	k := newKey(string(jose.ES256))
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test issuer"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.private.Public(), k.private)
	if err != nil {
		panic(err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: k.private}}}
	return config, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (m *minter) misbehave(f Faults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = f
}

func (m *minter) currentFaults() Faults {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults
}
