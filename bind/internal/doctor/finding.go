// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
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
	app   *cluster.App
	meta  metadata.Interface
	now   time.Time
	found []Finding
}

// note adds a finding: a fault with its remedy, or for "" that all is well.
func (d *doctor) note(check, about, wrong, well, hint string) {
	f := Finding{Check: check, About: about, OK: wrong == "", Message: cmp.Or(wrong, well)}
	if !f.OK {
		f.Hint = hint
	}
	d.found = append(d.found, f)
}
