// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"bytes"
	"cmp"
	"net/http"
	"time"
)

// Absent as Faults.Iss leaves the iss parameter out.
const Absent = "-"

// Faults are ways to misbehave. The zero value behaves.
type Faults struct {
	// Of tokens.
	Type      string         // typ of the header, in place of JWT; Absent leaves it out
	Algorithm string         // "none", or "HS256" with a key that is published, in place of the issuer's own
	WrongKey  bool           // sign with a key that is not published, under the name of the one that is
	Claims    map[string]any // claims that are other; nil leaves one out
	Skew      time.Duration  // how far the issuer's clock is ahead

	// Of the protocol.
	Iss             string // the iss parameter of callbacks, or Absent
	DiscoveryIssuer string // what the discovery document says the issuer is
	AuthorizeError  string // answer authorization requests with this error
	TokenError      string // answer token requests with this error
	ReuseCodes      bool   // take a code again
	IgnorePKCE      bool   // take a code with any verifier

	// Of the server, at paths that end in Path ("" means all).
	Path     string
	Down     bool          // answer 503
	Delay    time.Duration // answer late
	Redirect string        // answer with a redirect to this URL
	Padding  int           // answer with so many blanks before the content
}

// disturb reports whether it has answered the request, or no client waits for it.
func (f Faults) disturb(w http.ResponseWriter, r *http.Request) bool {
	late := time.NewTimer(f.Delay)
	defer late.Stop()
	select {
	case <-r.Context().Done():
		return true
	case <-late.C:
	}
	switch {
	case f.Down:
		http.Error(w, "down on request", http.StatusServiceUnavailable)
	case f.Redirect != "":
		http.Redirect(w, r, f.Redirect, http.StatusFound)
	default:
		return false
	}
	return true
}

// padded writes blanks first, so that an answer is huge and still right.
type padded struct {
	http.ResponseWriter
	padding int
}

// Write implements [http.ResponseWriter].
func (p *padded) Write(content []byte) (int, error) {
	blanks := bytes.Repeat([]byte(" "), p.padding)
	p.padding = 0
	if _, err := p.ResponseWriter.Write(blanks); err != nil {
		return 0, err
	}
	return p.ResponseWriter.Write(content)
}

func (f Faults) iss(o *Options) string {
	switch {
	case f.Iss == Absent:
		return ""
	case f.Iss == "" && !o.Profile.sendsIss():
		return ""
	default:
		return cmp.Or(f.Iss, o.URL)
	}
}
