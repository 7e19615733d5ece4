// SPDX-License-Identifier: Apache-2.0

package term

import (
	"strings"
	"testing"
	"unicode"
)

func TestP19Line(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "postgresqlinstances.anynines.com", "postgresqlinstances.anynines.com"},
		{"other scripts", "Größe 日本", "Größe 日本"},
		{"escape sequence", "a\x1b[31mred", `a\x1b[31mred`},
		{"C1 control", "a\u009b31m", `a\x9b31m`},
		{"carriage return hides the line", "accept nothing\raccept all", `accept nothing\raccept all`},
		{"line end adds a line", "ok\nerror: no", `ok\nerror: no`},
		{"bidi override", "user\u202etxt.exe", `user\u202etxt.exe`},
		{"bidi isolate", "a\u2066b\u2069", `a\u2066b\u2069`},
		{"zero width", "sec\u200brets", `sec\u200brets`},
		{"no-break space", "a\u00a0b", `a\xa0b`},
		{"bell and backspace", "\a\b", `\x07\x08`},
		{"not UTF-8", "a\xffb", `a\xffb`},
		{"tag characters", "a\U000e0041", `a\U000e0041`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Line(c.in); got != c.want {
				t.Errorf("Line(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestP19Text(t *testing.T) {
	got := Text(strings.Repeat("ä", 10<<10))
	if want := strings.Repeat("ä", MaxText) + "… (9240 more characters)"; got != want {
		t.Errorf("Text of 10 KB = %q", got)
	}
	if got := Text("short"); got != "short" {
		t.Errorf("Text(short) = %q", got)
	}
}

func TestP19Writer(t *testing.T) {
	var b strings.Builder
	if n, err := Writer(&b).Write([]byte("NAME\tREADY\nx\x1b]0;t\a\tTrue\n")); err != nil || n != 24 {
		t.Fatalf("Write = %d, %v", n, err)
	}
	if got, want := b.String(), "NAME\tREADY\nx\\x1b]0;t\\x07\tTrue\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{"a", "\x1b[2J", "\u202e", "\xff\xfe", "\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Line(s) {
			if !unicode.IsPrint(r) {
				t.Fatalf("Line(%q) lets %U through", s, r)
			}
		}
	})
}
