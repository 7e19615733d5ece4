// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"errors"
	"strings"
)

// What callers branch on with [errors.Is]. An answer of an OAuth server that
// says no is an [*Error] instead.
var (
	// ErrState says that a callback does not belong to the login that it was
	// compared with, or has been tampered with. Nothing was sent to the issuer.
	ErrState = errors.New("callback does not belong to this login")
	// ErrIssuer says that the iss parameter of a callback (RFC 9207) is missing
	// or names another server than the one that was asked.
	ErrIssuer = errors.New("callback comes from another issuer")
	// ErrToken says that an ID token does not count: signature, issuer,
	// audience, time, nonce, authorized party or access token hash is wrong.
	ErrToken = errors.New("ID token refused")
	// ErrUnavailable says that the issuer could not be asked or made no sense.
	// Trying again later may help.
	ErrUnavailable = errors.New("issuer unavailable")
	// ErrSealed says that a sealed value was not sealed with one of the keys
	// for this purpose, or was changed since.
	ErrSealed = errors.New("not a value sealed here for this purpose")
	// ErrExpired says that a sealed value was good once.
	ErrExpired = errors.New("sealed value has expired")
	// ErrScope says that a machine's token is good but does not allow this.
	ErrScope = errors.New("token lacks a scope")
	// ErrUserCode says that what a person has typed is not a user code that was
	// issued here, or one that is too old.
	ErrUserCode = errors.New("not a user code, or too old")
	// ErrDevicePending says that a device login waits for its other end.
	ErrDevicePending = errors.New("device login is pending")
	// ErrDeviceTaken says that a device login is another person's, or has an
	// answer already.
	ErrDeviceTaken = errors.New("device login is taken")
)

// An Error is the refusal of an OAuth server, RFC 6749 sections 4.1.2.1 and 5.2.
// Both fields are short printable ASCII, whatever the server sent.
type Error struct {
	Code        string // for example "access_denied"
	Description string // for people, may be empty
}

func (e *Error) Error() string {
	if e.Description == "" {
		return e.Code
	}
	return e.Code + ": " + e.Description
}

func newError(code, description string) *Error {
	if code == "" {
		code = "unknown_error"
	}
	return &Error{Code: printable(code), Description: printable(description)}
}

// printable makes what a stranger sent fit for terminals, logs and conditions:
// the characters that RFC 6749 allows in both fields, and not many of them.
func printable(s string) string {
	const limit = 300
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '?'
		}
		return r
	}, s)
}

// brief cuts the message of an error that may hold a whole response body.
type brief struct{ error }

func (b brief) Error() string { return printable(b.error.Error()) }
func (b brief) Unwrap() error { return b.error }
