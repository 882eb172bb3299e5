package main

import (
	"os"
	"path/filepath"
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

// TestReadAddress: the URL of a database is one line of a file or of the standard input.
func TestReadAddress(t *testing.T) {
	const address = "postgres://inbox:secret@db.example/inbox"
	for content, fine := range map[string]bool{address: true, address + "\n": true, "": false, "  ": false, address + "\nmore": false, strings.Repeat("x", maxAddress+1): false} {
		file := filepath.Join(t.TempDir(), "database-url")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{file, "-"} {
			got, err := readAddress(strings.NewReader(content), name)
			if fine && (got != address || err != nil) || !fine && err == nil {
				t.Errorf("%.60q: %q, %v", content, got, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows the password: %v", err)
			}
		}
	}
}
