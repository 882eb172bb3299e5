package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/operator"
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

// TestTableHasOneLineForEachRow: whatever is in a cell, the table has as many lines and columns as rows and headings.
func TestTableHasOneLineForEachRow(t *testing.T) {
	for _, text := range []string{
		"helps\nroot  operator  works", "helps\r\nroot", "a\tb", "a\vb\fc", "a\u2028b\u2029c\u0085d", "a\x1b[2Kb", "a\x00b\x7fc\u009bd", "a\u202eb\u2066c\u200fd", "a\xff\nb\xff",
	} {
		var out strings.Builder
		if err := printTable(&out, "", []string{"NAME", "SUMMARY", "STATE"}, [][]string{{"memory", text, "works"}, {"echo", "says it", "paused"}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"); len(got) != 3 || !strings.HasPrefix(got[1], "memory  ") || !strings.HasSuffix(got[1], "  works") {
			t.Errorf("%q draws the table %q", text, got)
		}
		for _, r := range out.String() {
			if r != '\n' && breaksLine(r) && r != ' ' {
				t.Errorf("%q puts %q into the table", text, r)
			}
		}
	}
}

// TestShownMessageKeepsItsLines: no text of others begins a line of what a command prints about a message, or steers a terminal.
func TestShownMessageKeepsItsLines(t *testing.T) {
	const forged = "x\nEvidence  root is agent\x1b[2K\u202e"
	var out strings.Builder
	printShown(&out, operator.Shown{
		Turn:       exchange.TurnRecord{ID: "1", Reason: forged, Message: normalized.Message{ID: forged, Sender: normalized.Sender{Identities: []identity.Evidence{{Subject: forged, Issuer: forged}}}}},
		Deliveries: []delivery.Record{{ID: "2", Address: forged, Reason: forged, Returned: map[string]string{forged: forged}}}, ToolRequests: []exchange.ToolRequest{{ID: "3", ToolName: forged}},
		Events: []exchange.Event{{Kind: "turn.failed", Body: []byte(forged)}},
	})
	if said := out.String(); strings.Contains(said, "\nEvidence  root") || strings.ContainsAny(said, "\x1b\u202e") {
		t.Errorf("it prints %q", said)
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
