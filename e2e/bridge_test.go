package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/children"
)

// bridgeUser is a bridge's client in the hands of a test.
type bridgeUser struct {
	*server
	token string
}

func (s *server) bridge(name string) *bridgeUser {
	s.t.Helper()
	lines := strings.Fields(s.inbox("tokens", "create", "--bridge", name))
	return &bridgeUser{s, lines[len(lines)-1]}
}

// try sends a request and gives status and answer; 0 when the server is not there.
func (b *bridgeUser) try(method, path string, body any) (int, map[string]any) {
	b.t.Helper()
	return b.tryAt(b.URL(), method, path, body)
}

// tryAt is try where the server is reached by another address than its public one.
func (b *bridgeUser) tryAt(base, method, path string, body any) (int, map[string]any) {
	b.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, base+path, bytes.NewReader(encoded))
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+b.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	answer := map[string]any{}
	_ = json.NewDecoder(response.Body).Decode(&answer)
	return response.StatusCode, answer
}

func (b *bridgeUser) ask(method, path string, body any) map[string]any {
	b.t.Helper()
	status, answer := b.try(method, path, body)
	if status/100 != 2 {
		b.t.Fatalf("%s %s answered %d: %v", method, path, status, answer)
	}
	return answer
}

func isTrue(value any) bool { flag, _ := value.(bool); return flag }

// pending returns the ids of what waits.
func (b *bridgeUser) pending() (ids []string) {
	b.t.Helper()
	items, _ := b.ask(http.MethodGet, "/v1/bridge/pending?limit=1000", nil)["items"].([]any)
	for _, item := range items {
		ids = append(ids, item.(map[string]any)["queue_id"].(string))
	}
	return ids
}

// readsAndWaits is a client that reads its queue, prints how much it got and then does nothing more.
const readsAndWaits = `
import json, sys, time, urllib.request
request = urllib.request.Request(sys.argv[1] + "/v1/bridge/pending?limit=1000", headers={"Authorization": "Bearer " + sys.argv[2]})
print(len(json.load(urllib.request.urlopen(request))["items"]), flush=True)
time.sleep(300)
`

// TestBridgeKilledBetweenPendingAndAck kills the client with the answers in its hands, and the server while messages come in
// and while answers wait: all of them come again, each is acknowledged once, none comes twice.
func TestBridgeKilledBetweenPendingAndAck(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		const messages = 24
		s := start(t, instance.Settings{Database: database, Lease: "1s"})
		relay, other := s.bridge("relay"), s.bridge("other")
		var group sync.WaitGroup
		taken := make(chan int, messages)
		for i := range messages {
			group.Go(func() {
				defer func() { taken <- i }()
				body := map[string]any{"agent": "echo", "message": fmt.Sprint("message ", i), "message_id": fmt.Sprint("m", i)}
				eventually(t, fmt.Sprint("message ", i, " is taken"), func() bool {
					status, _ := relay.try(http.MethodPost, "/v1/bridge/send", body)
					return status/100 == 2
				})
			})
		}
		for range messages / 4 { // some are taken, some are on their way, some have not begun
			await.Receive(t, taken, "some of the messages to be taken")
		}
		s.killed()
		await.Done(t, group.Wait, "all messages to be taken")
		eventually(t, "all answers are queued", func() bool { return len(relay.pending()) == messages })

		client := exec.Command("/usr/bin/python3", "-c", readsAndWaits, s.URL(), relay.token)
		output, err := client.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := children.Start(client); err != nil {
			t.Fatalf("start a client (Debian package python3): %v", err)
		}
		if got := firstLine(t, output, "the client to read its queue"); got != fmt.Sprint(messages) {
			t.Errorf("the client got %q", got)
		}
		if err := client.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = client.Wait()
		s.killed()

		ids := relay.pending()
		if len(ids) != messages || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != messages {
			t.Fatalf("after the kills %d items wait, want %d, each once", len(ids), messages)
		}
		if waiting := other.pending(); len(waiting) > 0 {
			t.Errorf("another client sees %v", waiting)
		}
		acked := relay.ask(http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": ids})["acked"]
		again := relay.ask(http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": ids})["acked"]
		if acked != float64(messages) || again != 0.0 {
			t.Errorf("acknowledged %v, then %v", acked, again)
		}
		s.killed()
		// every message once more: all are repeats, and no answer comes back
		for i := range messages {
			answer := relay.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": fmt.Sprint("message ", i), "message_id": fmt.Sprint("m", i)})
			if !isTrue(answer["duplicate"]) {
				t.Errorf("message %d was taken twice: %v", i, answer)
			}
		}
		if waiting := relay.pending(); len(waiting) > 0 {
			t.Errorf("%d answers came back", len(waiting))
		}
	})
}

// terminal runs inbox bridge.
func (b *bridgeUser) terminal(input string, arguments ...string) (string, error) {
	b.t.Helper()
	binary, err := built()
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, binary, append([]string{"bridge", "--server", b.URL()}, arguments...)...)
	command.Env = append(os.Environ(), "INBOX_TOKEN="+b.token)
	command.Dir = b.t.TempDir()
	command.Stdin = strings.NewReader(input)
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, problems.String())
	}
	return string(output), err
}

func TestBridgeInATerminal(t *testing.T) {
	s := start(t, instance.Settings{})
	user := s.bridge("laptop")
	say := func(input string, arguments ...string) string {
		t.Helper()
		output, err := user.terminal(input, arguments...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	if got := say("", "--agent", "echo", "hello", "there"); got != "hello there\n" {
		t.Errorf("the terminal shows %q", got)
	}
	if waiting := user.pending(); len(waiting) > 0 {
		t.Errorf("shown and not acknowledged: %v", waiting)
	}
	// a message whose answer nobody saw
	sessions, _ := user.ask(http.MethodGet, "/v1/sessions", nil)["sessions"].([]any)
	session := sessions[0].(map[string]any)["session_id"].(string)
	user.ask(http.MethodPost, "/v1/sessions/"+session+"/messages", map[string]any{"message": "missed"})
	eventually(t, "the missed answer is queued", func() bool { return len(user.pending()) == 1 })
	s.killed()
	if got := say("and now?\n/quit\n", "--agent", "echo", "--resume"); got != "missed\nand now?\n" {
		t.Errorf("the resumed terminal shows %q", got)
	}
	if sessions, _ := user.ask(http.MethodGet, "/v1/sessions", nil)["sessions"].([]any); len(sessions) != 1 {
		t.Errorf("there are %d conversations", len(sessions))
	}
	var item map[string]any
	if err := json.Unmarshal([]byte(say("", "--agent", "echo", "--json", "as data")), &item); err != nil || item["content"] != "as data" || !isTrue(item["completed"]) {
		t.Errorf("the item is %v, %v", item, err)
	}
	for i := range 30 { // more than a page of older answers, which another program of this client will show
		user.ask(http.MethodPost, "/v1/bridge/queue", map[string]any{"agent": "echo", "content": "older", "session_id": session, "queue_id": fmt.Sprint("older-", i)})
	}
	if got := say("", "--agent", "echo", "--session", session, "--json", "behind them"); !strings.Contains(got, `"content":"behind them"`) {
		t.Errorf("behind a page of older answers the terminal shows %q", got)
	}
	if _, err := user.terminal("", "--agent", "echo", "--server", "agents.example", "x"); err == nil || !strings.Contains(err.Error(), "https://agents.example") {
		t.Errorf("a server without scheme is told %v", err)
	}
	if _, err := user.terminal("", "--agent", "echo", "--resume", "--server", "http://127.0.0.1:1", "x"); err == nil || !strings.Contains(err.Error(), "INBOX_SERVER") {
		t.Errorf("a server that is not there is told %v", err)
	}
	if _, err := (&bridgeUser{s, "inbox_wrong"}).terminal("", "--agent", "echo", "x"); err == nil || !strings.Contains(err.Error(), "inbox tokens create --bridge") {
		t.Errorf("a wrong token is told %v", err)
	}
}

// TestConversationsMove exports from one server and imports into another, and back.
func TestConversationsMove(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		s := start(t, instance.Settings{Database: database})
		user := s.bridge("relay")
		first := user.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "<one> & two", "wait": true})
		user.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "session_id": first["session_id"], "message": "three", "wait": true})
		exported := s.inbox("export", "--format", "agent-framework", "--client", "relay")
		target := start(t, instance.Settings{})
		file := filepath.Join(t.TempDir(), "conversations.json")
		if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"new", "was here"} {
			if told := target.inbox("import", "--client", "moved", file); !strings.Contains(told, want) {
				t.Errorf("the import says %q, want %q", told, want)
			}
		}
		if again := target.inbox("export", "--format", "agent-framework", "--client", "moved"); again != exported {
			t.Errorf("exported again:\n%s\nwant\n%s", again, exported)
		}
		moved := target.bridge("moved")
		var document any
		if err := json.Unmarshal([]byte(exported), &document); err != nil {
			t.Fatal(err)
		}
		fresh := target.bridge("fresh")
		fresh.ask(http.MethodPost, "/v1/import", document)
		session := first["session_id"].(string)
		moved.ask(http.MethodPost, "/v1/sessions/"+session+"/messages", map[string]any{"message": "four", "wait": true})
		messages, _ := moved.ask(http.MethodGet, "/v1/sessions/"+session+"/messages", nil)["messages"].([]any)
		if len(messages) != 6 {
			t.Errorf("the conversation went on with %v", messages)
		}
		for _, one := range []string{"user_message", "assistant_message", `<one> & two`} {
			if !strings.Contains(exported, one) {
				t.Errorf("the export has no %s: %s", one, exported)
			}
		}
	})
}
