// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	minKey     = 32
	expirySize = 8 // milliseconds since 1970 before the plaintext, 0 for never
)

// A Sealer hides values in text that only a holder of the same keys can read or
// make: cookies, one-time codes. It may be used by many goroutines at once.
type Sealer struct{ keys []sealingKey }

// A sealingKey is one key in the two forms in which it is used.
type sealingKey struct {
	cipher.AEAD
	mac []byte
}

// NewSealer returns a Sealer that seals with the first key and opens with any.
// To rotate, put a new key first, wait until all that was sealed with the old one
// has expired, and take the old one away. A key is 32 random bytes or more.
func NewSealer(keys ...[]byte) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, errors.New("sealing needs at least one key")
	}
	s := &Sealer{}
	for i, key := range keys {
		derived, err := newSealingKey(key)
		if err != nil {
			return nil, fmt.Errorf("sealing key %d: %w", i+1, err)
		}
		s.keys = append(s.keys, derived)
	}
	return s, nil
}

func newSealingKey(key []byte) (k sealingKey, err error) {
	if len(key) < minKey {
		return k, fmt.Errorf("has %d bytes, needs %d or more", len(key), minKey)
	}
	derived, err := hkdf.Key(sha256.New, key, nil, "klutch seal v1", minKey)
	if err != nil {
		return k, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return k, err
	}
	if k.AEAD, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return k, err
	}
	k.mac, err = hkdf.Key(sha256.New, key, nil, "klutch user code v1", minKey)
	return k, err
}

// Seal seals plaintext for good. The result is URL-safe text. It opens only for
// the same purpose, so that a value made for one use is nothing in another.
func (s *Sealer) Seal(purpose string, plaintext []byte) (string, error) {
	return s.seal(purpose, plaintext, 0)
}

// SealUntil is Seal for a value that Open refuses from expiry on.
func (s *Sealer) SealUntil(purpose string, plaintext []byte, expiry time.Time) (string, error) {
	if expiry.UnixMilli() <= 0 {
		return "", ErrExpired
	}
	return s.seal(purpose, plaintext, uint64(expiry.UnixMilli()))
}

func (s *Sealer) seal(purpose string, plaintext []byte, expiry uint64) (string, error) {
	if purpose == "" {
		return "", errors.New("seal: purpose is empty")
	}
	message := append(binary.BigEndian.AppendUint64(nil, expiry), plaintext...)
	return base64.RawURLEncoding.EncodeToString(s.keys[0].Seal(nil, nil, message, []byte(purpose))), nil
}

// Open returns the plain text that was sealed for purpose. Its errors are ErrSealed and, where
// everything but the time is right, ErrExpired.
func (s *Sealer) Open(purpose, sealed string) ([]byte, error) {
	box, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || strings.ContainsAny(sealed, "\r\n") { // which decoders skip: a sealed text has one spelling
		return nil, ErrSealed
	}
	for _, key := range s.keys {
		if message, err := key.Open(nil, nil, box, []byte(purpose)); err == nil {
			return unexpired(message)
		}
	}
	return nil, ErrSealed
}

func unexpired(message []byte) ([]byte, error) {
	if len(message) < expirySize {
		return nil, ErrSealed
	}
	expiry := binary.BigEndian.Uint64(message)
	if expiry != 0 && uint64(time.Now().UnixMilli()) >= expiry {
		return nil, ErrExpired
	}
	return message[expirySize:], nil
}
