package main

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"inbox/inboxtest"
)

// TestEveryCommandTakesEveryIDOfAMessage runs each command that takes an ID with the run id of a chat, which the client chose. Commands about
// messages, their deliveries, demands, approvals and tool requests must find the message.
func TestEveryCommandTakesEveryIDOfAMessage(t *testing.T) {
	ofOthers := map[string]string{
		"inbox mail show": "a kept mail", "inbox mail forward": "a kept mail", "inbox sessions end": "a session of the console", "inbox tokens revoke": "a token",
		"inbox jobs retry": "work that may concern several messages", "inbox jobs remove": "work that may concern several messages", "inbox bridge": "a session",
		"inbox conversations export": "a session",
	}
	data := t.TempDir()
	s := inboxtest.Start(t, "INBOX_DATA_DIR="+data)
	t.Setenv("INBOX_DATA_DIR", data)
	t.Setenv("INBOX_PUBLIC_URL", "http://localhost:8080")
	t.Setenv("INBOX_SMTP_LISTEN", "off")
	t.Chdir(t.TempDir())
	token := s.Token("customer")

	walked := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		words := strings.Fields(cmd.Use)
		takes := false
		for _, word := range words[1:] {
			takes = takes || strings.Trim(word, "[]…") == "ID"
		}
		if !takes || ofOthers[cmd.CommandPath()] != "" {
			return
		}

		run := fmt.Sprintf("run_%032x", walked)
		walked++
		if status, _, said := s.Read(http.MethodPost, "/v1/chat", token, fmt.Sprintf(`{"agent":"echo","message":"hello","run_id":%q}`, run)); status != http.StatusOK {
			t.Fatal(status, said)
		}
		shown, err := s.Operator().Messages.Show(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}

		arguments := slices.Concat(strings.Fields(cmd.CommandPath())[1:], []string{run})
		switch words[len(words)-1] {
		case "TEXT", "[RESULT]":
			arguments = append(arguments, `{"success":true,"result":1}`)
		}
		switch cmd.CommandPath() {
		case "inbox record":
			arguments = append(arguments, "--to", t.TempDir())
		case "inbox approvals edit":
			arguments = append(arguments, "--text", "hello")
		}
		root := newRoot()
		var out bytes.Buffer
		root.SetArgs(arguments)
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetIn(strings.NewReader("hello\n"))
		err = root.ExecuteContext(t.Context())
		said := fmt.Sprint(out.String(), err)
		if strings.Contains(said, "was accepted here") || strings.Contains(said, "Usage") || err != nil && !strings.Contains(said, shown.Turn.ID) && strings.Contains(said, "there is no") {
			t.Errorf("%q: %s", arguments, said)
		}
	}
	walk(newRoot())
	if walked < 20 {
		t.Errorf("only %d commands were walked", walked)
	}
}
