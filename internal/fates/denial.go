// SPDX-License-Identifier: Apache-2.0

package fates

import "strings"

// A Denial is why a ValidatingAdmissionPolicy does not admit a request.
type Denial int

// Denials. The text of the answer alone tells them apart.
const (
	NotDenied        Denial = iota
	Denied                  // by what the policy says
	ParamKindUnknown        // the API server does not know the kind of the policy's parameters yet
	ParamsMissing           // there are no parameters for the request
)

// WhyDenied is what an API server says against a request, without the words that all denials of
// policies begin with; and whether it is such a denial.
func WhyDenied(err error) (why string, d Denial) {
	why = Explain(err)
	_, said, denied := strings.Cut(why, " denied request: ")
	switch {
	case !denied:
		return why, NotDenied
	case strings.Contains(said, "paramKind"):
		return said, ParamKindUnknown
	case strings.Contains(said, "no params found"):
		return said, ParamsMissing
	}
	return said, Denied
}

// A reworded error says something else.
type reworded struct {
	error
	said string
}

// Error implements error.
func (r reworded) Error() string { return r.said }

// Unwrap is the error that it was.
func (r reworded) Unwrap() error { return r.error }

// Reworded returns an error that wraps err, and whose text is said.
func Reworded(err error, said string) error { return reworded{err, said} }
