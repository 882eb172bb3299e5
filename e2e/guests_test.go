package e2e

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// TestAHundredSessionsOfOneAddressAreOneGuest: who begins a new session for each message hits the limit of one sender,
// while a guest at another address is answered.
func TestAHundredSessionsOfOneAddressAreOneGuest(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		s := start(t, instance.Settings{
			Database: database, Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\naccess = \"public\"\nunverified = \"answer\"\n",
			More: "[limits]\nsender = [\"30/744h\"]\n", Proxies: []string{"127.0.0.0/8"},
		})
		ask := func(address string, i int) string {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"hello %d"}]}}}`, i)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/agent/echo", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("X-Forwarded-For", address)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			answer, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			switch { // JSON-RPC says both with 200
			case bytes.Contains(answer, fmt.Appendf(nil, "hello %d", i)):
				return "answered"
			case bytes.Contains(answer, []byte("Too many messages")):
				return "refused"
			}
			return string(answer)
		}
		outcomes := map[string]int{}
		for i := range 100 {
			outcomes[ask("203.0.113.7", i)]++
		}
		if outcomes["answered"] != 30 || outcomes["refused"] != 70 {
			t.Errorf("100 sessions of one address: %v; want 30 answers and 70 refusals", outcomes)
		}
		if outcome := ask("198.51.100.7", 1); outcome != "answered" {
			t.Errorf("another address hears %s", outcome)
		}
	})
}

// TestSixForgedMailsLeaveABoundedDisk: six mails of 20 MB that prove nothing left 138 MB.
func TestSixForgedMailsLeaveABoundedDisk(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPost(t, database)
		used := func() (bytes int64) {
			_ = filepath.WalkDir(filepath.Join(p.Directory, "data"), func(_ string, entry fs.DirEntry, err error) error {
				if info, failed := entry.Info(); err == nil && failed == nil && !entry.IsDir() {
					bytes += info.Size()
				}
				return nil
			})
			return bytes
		}
		before := used()
		body := strings.Repeat(strings.Repeat("x", 70)+"\n", 20_000_000/71)
		for i := range 6 {
			mail := load.Mail{From: "bob@nowhere.test", To: "echo@inbox.test", MessageID: fmt.Sprintf("large-%d@nowhere.test", i), Subject: "Hi", Body: body}
			sender, err := load.DialMail(p.Settings.SMTP)
			if err != nil {
				t.Fatal(err)
			}
			if err := sender.Send(mail.From, mail.To, mail.Bytes()); err == nil || !strings.Contains(err.Error(), "552") {
				t.Errorf("mail %d of 20 MB is answered %v; want 552", i, err)
			}
			sender.Close()
		}
		if grown := used() - before; grown > 10<<20 {
			t.Errorf("six refused mails left %d bytes", grown)
		}
	})
}
