package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/internal/children"
)

// follower is `inbox list --follow --json`, which writes into a file.
type follower struct {
	command *exec.Cmd
	output  string
}

func (s *server) follower(t *testing.T) *follower {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}

	f := &follower{output: filepath.Join(t.TempDir(), "followed")}
	file, err := os.Create(f.output)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	f.command = exec.Command(binary, "--config", s.ConfigFile(), "list", "--follow", "--json", "--agent", "echo")
	f.command.Dir, f.command.Stdout, f.command.Stderr = s.Directory, file, os.Stderr
	if err := children.Start(f.command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.command.Process.Kill() // it has ended where the test went well
		_ = f.command.Wait()
	})
	return f
}

// printed are the ids of whole lines.
func (f *follower) printed(t *testing.T) (ids []string) {
	t.Helper()
	content, err := os.ReadFile(f.output)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var turn exchange.TurnRecord
		if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &turn) == nil {
			ids = append(ids, turn.ID)
		}
	}
	return ids
}

// TestFollowArrivals: who follows what comes in gets each message once, also those around a crash of the server, and each is found by
// its words afterwards.
func TestFollowArrivals(t *testing.T) {
	const messages = 24
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, steady)
		peer := p.a2aPeer("echo", "ann")
		send := func(n int) {
			t.Helper()
			if _, err := peer.Send(t.Context(), load.SendBody(fmt.Sprintf("m%d", n), fmt.Sprintf("shipment number%d", n), true)); err != nil {
				t.Fatal(err)
			}
		}

		send(0)
		f := p.follower(t)
		eventually(t, "what was there before is printed", func() bool { return len(f.printed(t)) > 0 })
		for n := 1; n < messages; n++ {
			if send(n); n == messages/2 {
				p.killed()
			}
		}

		eventually(t, "every message is printed", func() bool { return len(f.printed(t)) >= messages })
		var all exchange.List[exchange.TurnRecord]
		if err := json.Unmarshal([]byte(p.inbox("list", "--json", "--limit", "500", "--agent", "echo")), &all); err != nil {
			t.Fatal(err)
		}
		var listed []string
		for _, turn := range all.Items {
			listed = append(listed, turn.ID)
		}
		printed := f.printed(t)
		slices.Sort(listed)
		slices.Sort(printed)
		if len(listed) != messages || !slices.Equal(listed, printed) {
			t.Errorf("%d are listed and %d printed, the same: %v", len(listed), len(printed), slices.Equal(listed, printed))
		}

		eventually(t, "a message is found by its words", func() bool {
			found := p.inbox("list", "--text", fmt.Sprintf(`"shipment number%d"`, messages/2))
			return strings.Count(found, "shipment") == 1
		})
		if err := f.command.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := f.command.Wait(); err != nil {
			t.Errorf("it ended with %v after Ctrl-C", err)
		}
	})
}
