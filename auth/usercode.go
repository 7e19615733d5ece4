// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
)

const (
	// letters make no words and have no look-alikes (RFC 8628 section 6.1).
	letters = "BCDFGHJKLMNPQRSTVWXZ"

	codeRandom = 7 // letters at random
	codeCheck  = 3 // letters that only a holder of the sealing keys can add
	codeLength = codeRandom + codeCheck
)

// NormalizeUserCode is a user code as it was issued, however a person has typed it:
// in lower case, with other spaces and dashes. The empty string is not one.
func NormalizeUserCode(typed string) string {
	if len(typed) > 8*codeLength {
		return ""
	}
	code := make([]byte, 0, codeLength+1)
	for _, r := range strings.ToUpper(typed) {
		switch {
		case strings.ContainsRune(letters, r) && len(code) <= codeLength:
			if len(code) == codeLength/2 {
				code = append(code, '-')
			}
			code = append(code, byte(r))
		case !strings.ContainsRune(" \t-_.\u2010\u2011\u2012\u2013\u2014\u00a0", r):
			return ""
		}
	}
	if len(code) != codeLength+1 {
		return ""
	}
	return string(code)
}

// userCode returns a new code, "BCDFG-HJKLM". It has 43 bits against guessing,
// and its last letters tell nearly every mistyped, made-up or outdated code from an
// issued one before anything is looked up.
func (s *Sealer) userCode(now time.Time, life time.Duration) string {
	bytes := make([]byte, 4*codeRandom)
	_, _ = rand.Read(bytes) // never fails
	random := pickLetters(bytes, codeRandom)
	return NormalizeUserCode(random + s.keys[0].check(random, slot(now, life)))
}

// issued reports whether code is one that userCode has returned within the last one
// to two lives.
func (s *Sealer) issued(code string, now time.Time, life time.Duration) bool {
	plain := strings.ReplaceAll(code, "-", "")
	if len(plain) != codeLength {
		return false
	}
	random, check, ok := plain[:codeRandom], []byte(plain[codeRandom:]), false
	for _, key := range s.keys {
		for _, at := range []int64{slot(now, life), slot(now, life) - 1} {
			ok = hmac.Equal(check, []byte(key.check(random, at))) || ok
		}
	}
	return ok
}

func slot(now time.Time, life time.Duration) int64 { return now.UnixNano() / int64(life) }

func (k sealingKey) check(random string, slot int64) string {
	mac := hmac.New(sha256.New, k.mac)
	mac.Write(binary.BigEndian.AppendUint64([]byte(random), uint64(slot)))
	return pickLetters(mac.Sum(nil), codeCheck)
}

// pickLetters uses four bytes for a letter, so that none is likelier than another.
func pickLetters(random []byte, n int) string {
	picked := make([]byte, n)
	for i := range picked {
		picked[i] = letters[binary.BigEndian.Uint32(random[4*i:])%uint32(len(letters))]
	}
	return string(picked)
}
