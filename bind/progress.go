// SPDX-License-Identifier: Apache-2.0

package bind

import "fmt"

// A progress is told, a line each, what has been done and what is waited for. Nil is
// nobody.
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
