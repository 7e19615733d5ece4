// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"bytes"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klutch-go/sdk/auth"
)

func newSealer(tb testing.TB, keys ...[]byte) *auth.Sealer {
	tb.Helper()
	sealer, err := auth.NewSealer(keys...)
	if err != nil {
		tb.Fatal(err)
	}
	return sealer
}

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func seal(t *testing.T, s *auth.Sealer, purpose, text string) string {
	t.Helper()
	sealed, err := s.Seal(purpose, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestP29SealingKeysRotate(t *testing.T) {
	before := newSealer(t, key(1))
	during := newSealer(t, key(2), key(1))
	after := newSealer(t, key(2))
	old, young := seal(t, before, "session", "ada"), seal(t, during, "session", "ada")

	tests := map[string]struct {
		sealer *auth.Sealer
		sealed string
		want   error
	}{
		"old value before":   {before, old, nil},
		"old value during":   {during, old, nil},
		"old value after":    {after, old, auth.ErrSealed},
		"young value before": {before, young, auth.ErrSealed}, // so the first key has sealed it
		"young value during": {during, young, nil},
		"young value after":  {after, young, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tt.sealer.Open("session", tt.sealed)
			if !errors.Is(err, tt.want) || err == nil && string(got) != "ada" {
				t.Errorf("Open = %q, %v, want error %v", got, err, tt.want)
			}
		})
	}
}

func TestSealIsBoundToItsPurpose(t *testing.T) {
	s := newSealer(t, key(1))
	sealed := seal(t, s, "transaction", "ada")
	for _, purpose := range []string{"", "session", "transaction ", "transactio"} {
		if got, err := s.Open(purpose, sealed); !errors.Is(err, auth.ErrSealed) {
			t.Errorf("Open for %q = %q, %v, want ErrSealed", purpose, got, err)
		}
	}
	if sealed, err := s.Seal("", []byte("ada")); err == nil {
		t.Errorf("Seal for no purpose = %q, want an error", sealed)
	}
}

func TestSealExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSealer(t, key(1))
		sealed, err := s.SealUntil("code", []byte("ada"), time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		forGood := seal(t, s, "code", "ada")

		time.Sleep(time.Minute - time.Millisecond)
		if got, err := s.Open("code", sealed); err != nil || string(got) != "ada" {
			t.Errorf("Open in time = %q, %v", got, err)
		}
		time.Sleep(time.Millisecond)
		if got, err := s.Open("code", sealed); !errors.Is(err, auth.ErrExpired) {
			t.Errorf("Open a minute later = %q, %v, want ErrExpired", got, err)
		}
		if got, err := s.Open("other", sealed); !errors.Is(err, auth.ErrSealed) {
			t.Errorf("Open for another purpose = %q, %v, want ErrSealed: nothing is said about its time", got, err)
		}
		if _, err := s.Open("code", forGood); err != nil {
			t.Errorf("Open of a value without expiry = %v", err)
		}
		if sealed, err := s.SealUntil("code", nil, time.Time{}); err == nil {
			t.Errorf("SealUntil the zero time = %q, want an error, not a value for good", sealed)
		}
	})
}

func TestSealedTextCannotBeChanged(t *testing.T) {
	s := newSealer(t, key(1))
	const text = "a text of which base64 leaves some bits over"
	sealed := seal(t, s, "session", text)
	if url.QueryEscape(sealed) != sealed {
		t.Errorf("%s is not URL-safe", sealed)
	}
	for i := range sealed {
		changed := []byte(sealed)
		if changed[i]++; !isBase64(changed[i]) {
			changed[i] = 'A'
		}
		if got, err := s.Open("session", string(changed)); !errors.Is(err, auth.ErrSealed) {
			t.Errorf("Open with character %d changed = %q, %v, want ErrSealed", i, got, err)
		}
		if got, err := s.Open("session", sealed[:i]); !errors.Is(err, auth.ErrSealed) {
			t.Errorf("Open of the first %d characters = %q, %v, want ErrSealed", i, got, err)
		}
	}
	for _, skipped := range []string{"\n", "\r", "\r\n"} { // else one device code would count as many by its polls
		if got, err := s.Open("session", sealed[:9]+skipped+sealed[9:]); !errors.Is(err, auth.ErrSealed) {
			t.Errorf("Open with %q in it = %q, %v, want ErrSealed", skipped, got, err)
		}
	}
	if again := seal(t, s, "session", text); again == sealed {
		t.Error("the same plaintext is sealed alike twice")
	}
}

func isBase64(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_'
}

func TestNewSealer(t *testing.T) {
	for name, tt := range map[string]struct {
		keys [][]byte
		want string
	}{
		"no key":       {nil, "sealing needs at least one key"},
		"a short key":  {[][]byte{key(1)[:31]}, "sealing key 1: has 31 bytes, needs 32 or more"},
		"an empty key": {[][]byte{key(1), {}}, "sealing key 2: has 0 bytes, needs 32 or more"},
		"a long key":   {[][]byte{append(key(1), key(2)...)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := auth.NewSealer(tt.keys...)
			if got := message(err); got != tt.want {
				t.Errorf("NewSealer = %q, want %q", got, tt.want)
			}
		})
	}
	long := append(key(1), key(2)...)
	if got, err := newSealer(t, key(1)).Open("p", seal(t, newSealer(t, long), "p", "ada")); err == nil {
		t.Errorf("only the first 32 bytes of a key count: opened %q", got)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func FuzzSeal(f *testing.F) {
	s := newSealer(f, key(1))
	f.Add("session", []byte("ada"), "junk")
	f.Fuzz(func(t *testing.T, purpose string, plaintext []byte, junk string) {
		if got, err := s.Open("session", junk); err == nil {
			t.Errorf("Open(%q) = %q", junk, got)
		}
		sealed, err := s.Seal(purpose, plaintext)
		if err != nil {
			return
		}
		if got, err := s.Open(purpose, sealed); err != nil || !bytes.Equal(got, plaintext) {
			t.Errorf("Open = %q, %v, want %q", got, err, plaintext)
		}
		if got, err := s.Open(purpose+"x", sealed); err == nil {
			t.Errorf("Open for another purpose = %q", got)
		}
	})
}
