package inbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/e2e/load"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// TestRefusedMailLeavesNoFiles: whatever the reason for which a mail is refused, or a repeat ignored, nothing of it stays on disk, and files
// that a kept mail has as well stay.
func TestRefusedMailLeavesNoFiles(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]string{"sqlite": "sqlite", "postgres": storetest.Postgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := refusingServer(t, database)
			operator := server.Operator()
			if _, _, err := operator.Lists.Add(t.Context(), exchange.ListEntry{List: exchange.ListBlock, Kind: exchange.TargetHost, Target: "blocked.test"}); err != nil {
				t.Fatal(err)
			}
			if err := operator.Pauses.Begin(t.Context(), "paused", "a test"); err != nil {
				t.Fatal(err)
			}

			if err := bringFiles(server, "patient", "wanted"); err != nil {
				t.Fatal(err)
			}
			kept := filesBelow(t, server)
			if len(kept) != 3 { // two files and the mail
				t.Fatalf("%d files of the mail that is held", len(kept))
			}

			for _, c := range []struct{ name, from, agent, what, want string }{
				{"an agent that refuses senders without proof", "ann@sender.test", "strict", "unwanted", "5.7"},
				{"the files of the kept mail", "ann@sender.test", "strict", "wanted", "5.7"},
				{"a blocked sender", "ann@blocked.test", "patient", "unwanted", "5.7"},
				{"a paused agent", "ann@sender.test", "paused", "unwanted", "5.2"},
				{"an unknown agent", "ann@sender.test", "nobody", "unwanted", "5.1"},
				{"no room for more held mails", "ann@sender.test", "patient", "unwanted", "4.7"},
				{"a repeat", "ann@sender.test", "patient", "wanted", ""},
			} {
				await.Until(t, c.name, func() bool { // the block and the pause are read soon
					err := bringFilesFrom(server, c.from, c.agent, c.what)
					return c.want == "" && err == nil || c.want != "" && err != nil && strings.Contains(err.Error(), c.want)
				})
				if left := filesBelow(t, server); strings.Join(left, "\n") != strings.Join(kept, "\n") {
					t.Errorf("%s: the files are %v, want %v", c.name, left, kept)
				}
			}
		})
	}
}

// refusingServer has room for one held mail.
func refusingServer(t *testing.T, database string) *inboxtest.Server {
	t.Helper()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	file := filepath.Join(t.TempDir(), "inbox.toml")
	text := fmt.Sprintf(`
domain = "inbox.test"
dns = { resolver = %q }
federation = { allow_private = true }
limits = { held_per_sender = 1, held_messages = 1 }
[[agents]]
name = "strict"
kind = "echo"
unverified = "refuse"
[[agents]]
name = "patient"
kind = "echo"
unverified = "hold"
[[agents]]
name = "paused"
kind = "echo"
unverified = "refuse"
`, names.Address())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return inboxtest.New(t, file, withMail, "INBOX_DATABASE_URL="+database).Serve()
}
