// SPDX-License-Identifier: Apache-2.0

// Package term makes text of strangers fit for a terminal: it is shown as it is, and
// none of it moves the cursor, changes a colour, turns the direction of writing or hides
// among invisible characters.
package term

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxText is the number of characters that Text lets through.
const MaxText = 1000

// Line returns s on one line: every character that is not printable is written as
// in Go source ("\x1b", "\u202e"), line ends and tabs too.
func Line(s string) string { return clean(s, false) }

// Text is Line for text of any length: after MaxText characters it ends with the
// number of those that were left out.
func Text(s string) string {
	n := utf8.RuneCountInString(s)
	if n <= MaxText {
		return Line(s)
	}
	return fmt.Sprintf("%s… (%d more characters)", Line(string([]rune(s)[:MaxText])), n-MaxText)
}

// Writer returns a writer that escapes what Line escapes, apart from line ends and
// tabs. Each Write must hold whole characters.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ w io.Writer }

func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.w, clean(string(p), true)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func clean(s string, layout bool) string {
	if strings.IndexFunc(s, func(r rune) bool { return escaped(r, layout) }) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case escaped(r, layout):
			b.WriteString(escape(r))
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

// escaped: unicode.IsPrint leaves out controls, format characters such as bidi
// overrides and zero-width joiners, private use, and all spaces but U+0020.
func escaped(r rune, layout bool) bool {
	if layout && (r == '\n' || r == '\t') {
		return false
	}
	return !unicode.IsPrint(r)
}

func escape(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
