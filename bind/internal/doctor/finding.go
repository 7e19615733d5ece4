// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/klutch-go/sdk/bind/internal/cluster"
)

// A Finding is what one check has found; see the Finding of package bind.
type Finding struct {
	Check   string `json:"check"`
	About   string `json:"about,omitempty"`
	OK      bool   `json:"ok"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`

	Objects []string `json:"objects,omitempty"`
}

// A doctor collects findings.
type doctor struct {
	app    *cluster.App
	meta   metadata.Interface
	now    time.Time
	silent bool // the konnector has stopped, or died

	nameless  map[string]bool // Secrets that do not say from which platform they are, and their bindings
	unheard   map[string]bool // Secrets whose platform has heard another konnector only, and their bindings
	unreached map[string]bool // Secrets whose platform does not answer as it should, and their bindings

	found []Finding
}

func newDoctor(now time.Time) *doctor {
	return &doctor{now: now, nameless: map[string]bool{}, unheard: map[string]bool{}, unreached: map[string]bool{}}
}

// note adds a finding: a fault with its remedy, or for "" that all is well.
func (d *doctor) note(check, about, wrong, well, hint string) {
	f := Finding{Check: check, About: about, OK: wrong == "", Message: cmp.Or(wrong, well)}
	if !f.OK {
		f.Hint = hint
	}
	if d.nameless[about] {
		f.Hint = repairs.ReplaceAllString(f.Hint, "kubectl bind repair URL")
	}
	d.found = append(d.found, f)
}

// repairs are the commands in hints that take the URL of a platform where nothing names it.
var repairs = regexp.MustCompile(`kubectl bind repair( URL)?\b`)

func (d *doctor) age(t time.Time) time.Duration { return d.now.Sub(t).Round(time.Second) }

// mostNamed bounds how many objects one finding names.
const mostNamed = 10

// some names as many as one finding may.
func some(names []string) string {
	text := strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}
