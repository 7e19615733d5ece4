// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A progress takes lines about steps that are done or waited for. Nil drops them.
type progress func(string)

func (p progress) say(format string, args ...any) {
	if p != nil {
		p(fmt.Sprintf(format, args...))
	}
}

// changes returns what says a line only if it is not the one before.
func (p progress) changes() func(line string) {
	said := ""
	return func(line string) {
		if line != said {
			said = line
			p.say("%s", line)
		}
	}
}

// A DryRun says how to change nothing.
type DryRun string

// Dry runs.
const (
	DryRunClient DryRun = "Client" // send no writes
	DryRunServer DryRun = "Server" // have the API servers check each write; not what needs something that is not there yet
)

// word is what has been done, or in a dry run would have been.
func (d DryRun) word(done, would string) string {
	if d != "" {
		return would
	}
	return done
}

func (d DryRun) param() []string {
	if d == "" {
		return nil
	}
	return []string{metav1.DryRunAll}
}
