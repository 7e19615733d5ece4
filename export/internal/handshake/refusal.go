// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"errors"
	"net/http"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
)

// CodeUnavailable says to a program that it may try again, RFC 6749 section 4.1.2.1.
const CodeUnavailable = "temporarily_unavailable"

// An OAuthError is a refusal for a program, RFC 6749 section 5.2.
type OAuthError struct {
	Status       int    `json:"-"` // 0 means 400
	Authenticate string `json:"-"` // for WWW-Authenticate, may be empty
	Code         string `json:"error"`
	Description  string `json:"error_description,omitempty"`
	Next         string `json:"next,omitempty"` // what to do now
}

func (e *OAuthError) Error() string { return e.Code + ": " + e.Description }

const codeInvalid = "invalid_grant"

func invalidGrant(why string) error { return &OAuthError{Code: codeInvalid, Description: why} }

// A tellable error knows what a program should know of it.
type tellable interface {
	error
	oauth() *OAuthError
}

// AsOAuth returns what a program should know of err, or nil.
func AsOAuth(err error) *OAuthError {
	refused, ok := errors.AsType[*OAuthError](err)
	if ok {
		return refused
	}
	if said, ok := errors.AsType[*auth.Error](err); ok { // of a device login
		return &OAuthError{Code: said.Code, Description: said.Description}
	}
	if missing, ok := errors.AsType[tellable](err); ok {
		return missing.oauth()
	}
	switch {
	case errors.Is(err, tenant.ErrForeign):
		return &OAuthError{Status: http.StatusConflict, Code: "access_denied", Description: err.Error(), Next: "ask the platform team to look at it"}
	case errors.Is(err, tenant.ErrCapped):
		return &OAuthError{Status: http.StatusForbidden, Code: "access_denied", Description: err.Error(), Next: "ask the platform team to remove one that is gone, or to allow more"}
	case errors.Is(err, tenant.ErrTerminating):
		return &OAuthError{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Description: err.Error(), Next: "try again when it is gone"}
	}
	return nil
}
