package main

import (
	"strings"
	"testing"
)

func TestStrangersTextIsHarmlessOnATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"hello\r\n  world\t!":              "hello world !",
		"red \x1b[31malert\x07 \u202etxet": "red [31malert txet",
		"caf\u00e9 \U0001f600":             "caf\u00e9 \U0001f600",
		"bad \xff byte":                    "bad byte",
		strings.Repeat("x", 60):            strings.Repeat("x", 60),
		strings.Repeat("\u00e9", 61):       strings.Repeat("\u00e9", 59) + "…",
		"":                                 "",
		"a" + strings.Repeat("\u2028", 100) + "b": "a b",
	} {
		if got := excerpt(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
