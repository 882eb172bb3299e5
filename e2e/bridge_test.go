package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"inbox/adapters/bridge/contract"
	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/normalized"
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

// try sends a request and returns status and answer; 0 when the server is not there.
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
//
//contract:shows channels-11 channels-52 channels-53
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
	t.Parallel()
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
	// a message whose answer no one saw
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
		exported := s.inbox("conversations", "export", "--format", "agent-framework", "--client", "relay")
		target := start(t, instance.Settings{})
		file := filepath.Join(t.TempDir(), "conversations.json")
		if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"new", "was here"} {
			if told := target.inbox("conversations", "import", "--client", "moved", file); !strings.Contains(told, want) {
				t.Errorf("the import says %q, want %q", told, want)
			}
		}
		if again := target.inbox("conversations", "export", "--format", "agent-framework", "--client", "moved"); again != exported {
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

// TestBridgeCallbacksOnlyGoOutside: addresses inside are refused when they are registered, in every form, and a name that leads
// inside only later is not dialled. The item waits in the queue all the while.
func TestBridgeCallbacksOnlyGoOutside(t *testing.T) {
	t.Parallel()
	names := startNames(t)
	var reached atomic.Int64
	// Only who may listen there can count connections; the others rely on the server's own count of refusals.
	if listener, err := net.Listen("tcp", "127.0.0.1:443"); err == nil {
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				_ = connection.Close()
			}
		}()
	}
	s := start(t, instance.Settings{Strict: true, Domain: "inbox.test", DNS: names.address, More: "[bridges]\nretry = [\"100ms\", \"100ms\"]\n"})
	relay := s.bridge("relay")
	register := func(address string) (int, map[string]any) {
		return relay.tryAt("http://"+s.Settings.HTTP, http.MethodPost, "/v1/bridge/register", map[string]any{"callback_url": address})
	}
	for name, address := range map[string]string{
		"inside.test": "10.0.0.7", "metadata.test": "169.254.169.254", "local.test": "127.0.0.1", "shared.test": "100.64.0.1",
	} {
		names.set(name, address)
	}
	for _, address := range []string{
		"http://93.184.215.14/h", "https://127.0.0.1/h", "https://127.1/h", "https://2130706433/h", "https://0x7f000001/h", "https://localhost/h",
		"https://10.0.0.7/h", "https://192.168.1.1/h", "https://169.254.169.254/latest/meta-data", "https://0.0.0.0/h", "https://[::1]/h",
		"https://[::ffff:127.0.0.1]/h", "https://[fe80::1]/h", "https://[64:ff9b::7f00:1]/h", "https://inside.test/h", "https://metadata.test/h",
		"https://local.test/h", "https://LOCAL.test./h", "https://shared.test/h", "https://public.test:8443/h", "https://user:secret@public.test/h",
		"file:///etc/passwd", "gopher://public.test/", "https://public.test/h#part",
	} {
		status, answer := register(address)
		if status != http.StatusBadRequest || strings.Contains(fmt.Sprint(answer), "10.0.0.7") && !strings.Contains(address, "10.0.0.7") {
			t.Errorf("%s: answered %d %v", address, status, answer)
		}
	}
	names.set("rebind.test", "93.184.215.14")
	if status, answer := register("https://rebind.test/h"); status != http.StatusOK || names.questions("rebind.test") == 0 {
		t.Fatalf("while the name leads outside: %d %v", status, answer)
	}
	names.set("rebind.test", "127.0.0.1")
	before := s.metric("inbox_outgoing_refused_dials_total")
	local := "http://" + s.Settings.HTTP
	status, run := relay.tryAt(local, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "wait": true})
	if status != http.StatusOK {
		t.Fatalf("answered %d %v", status, run)
	}
	eventually(t, "the callback is refused, again and again", func() bool { return s.metric("inbox_outgoing_refused_dials_total") >= before+3 })
	eventually(t, "the item says so and waits", func() bool {
		_, answer := relay.tryAt(local, http.MethodGet, "/v1/bridge/items/"+run["queue_id"].(string), nil)
		return answer["delivery_status"] == "failed"
	})
	if reached.Load() != 0 {
		t.Errorf("an address inside was dialled %d times", reached.Load())
	}
}

// TestCallbacksAreRepeated calls back a receiver that refuses, again and again: each time with the same id and a signature
// that the recipe of docs/bridges.md verifies. The server is killed between two attempts. Nothing of it removes the item.
func TestCallbacksAreRepeated(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		const secret = "sixteen bytes or more"
		type attempt struct{ id, number string }
		attempts := make(chan attempt, 64)
		var open atomic.Bool
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write(body)
			if r.Header.Get("X-Inbox-Signature") != "sha256="+hex.EncodeToString(mac.Sum(nil)) {
				t.Errorf("the signature is %q", r.Header.Get("X-Inbox-Signature"))
			}
			if !strings.Contains(string(body), `"queue_id":"`+r.Header.Get("X-Inbox-Delivery")+`"`) {
				t.Errorf("the delivery %s brings %s", r.Header.Get("X-Inbox-Delivery"), body)
			}
			if !open.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			attempts <- attempt{r.Header.Get("X-Inbox-Delivery"), r.Header.Get("X-Inbox-Attempt")}
		}))
		t.Cleanup(receiver.Close)
		s := start(t, instance.Settings{Database: database, Lease: "1s", More: "[bridges]\nretry = [\"300ms\", \"600ms\", \"2s\", \"2s\", \"2s\", \"2s\", \"2s\"]\n"})
		relay := s.bridge("relay")
		relay.ask(http.MethodPost, "/v1/bridge/register", map[string]any{"callback_url": receiver.URL, "callback_secret": secret})
		run := relay.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "wait": true})
		var past []attempt
		for range 3 {
			past = append(past, await.Receive(t, attempts, "three attempts of the callback"))
		}
		open.Store(true)
		s.killed()
		past = append(past, await.Receive(t, attempts, "an attempt after the crash"))
		for i, one := range past {
			if one.id != run["queue_id"] || i < 3 && one.number != fmt.Sprint(i+1) {
				t.Errorf("attempt %d is %+v, want the id %v", i+1, one, run["queue_id"])
			}
		}
		eventually(t, "the item is delivered", func() bool {
			return relay.ask(http.MethodGet, "/v1/bridge/items/"+run["queue_id"].(string), nil)["delivery_status"] == "delivered"
		})
		if ids := relay.pending(); len(ids) != 1 || ids[0] != run["queue_id"] {
			t.Errorf("a callback removed the item: %v", ids)
		}
	})
}

// fillQueue puts items into a queue behind the server's back: as many as would take requests minutes.
func (s *server) fillQueue(client string, count int) {
	s.t.Helper()
	driver, address := "pgx", s.Settings.Database
	if address == "" {
		driver, address = "sqlite", "file:"+filepath.Join(s.Directory, "data", "inbox.db")+"?_pragma=busy_timeout(5000)"
	}
	database, err := sql.Open(driver, address)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = database.Close() }()
	filled, err := database.ExecContext(s.t.Context(), fmt.Sprintf(`WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d)
		INSERT INTO bridge_items (id, client_id, position, session_id, status, leased_until, acked_at, item)
		SELECT 'item ' || n, '%s', '0' || n, '', 'pending', 0, 0,
		'{"queue_id":"item ' || n || '","client_id":"%s","agent":"echo","content":"x","created_at":"2026-01-01T00:00:00Z"}' FROM numbers`, count, client, client))
	if err != nil {
		s.t.Fatal(err)
	}
	if rows, err := filled.RowsAffected(); err != nil || rows != int64(count) {
		s.t.Fatal(rows, err)
	}
}

// TestAFullQueueRefusesAtTheDoor fills a queue. Who sends is told to come again before anything is taken; what was taken before
// is answered all the same, and waits behind the others.
func TestAFullQueueRefusesAtTheDoor(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		agent := startScripted(t, func(normalized.Message) normalized.Response { <-gate; return say("late") })
		t.Cleanup(release)
		s := start(t, instance.Settings{Database: database, Agents: agent.table("helper", "")})
		relay := s.bridge("relay")
		message := map[string]any{"agent": "helper", "message": "hello"}
		taken := relay.ask(http.MethodPost, "/v1/bridge/send", message)
		s.fillQueue("relay", contract.DefaultMaxItems)
		for path, body := range map[string]map[string]any{"/v1/bridge/send": message, "/v1/bridge/queue": {"agent": "helper", "content": "one more"}} {
			status, answer := relay.try(http.MethodPost, path, body)
			if told, _ := answer["error"].(map[string]any); status != http.StatusTooManyRequests || told["code"] != contract.CodeFull || !strings.Contains(fmt.Sprint(told["message"]), "acknowledges") {
				t.Errorf("%s: a full queue is told %d %v", path, status, answer)
			}
		}
		relay.ask(http.MethodPost, "/v1/bridge/queue", map[string]any{"agent": "helper", "content": "in its place", "queue_id": "item 7"})
		if list, _ := relay.ask(http.MethodGet, "/v1/sessions", nil)["sessions"].([]any); len(list) != 1 {
			t.Errorf("a refused message left a session: %v", list)
		}
		release()
		done := relay.ask(http.MethodGet, "/v1/runs/"+taken["run_id"].(string)+"?wait=20s", nil)
		eventually(t, "the late answer is queued", func() bool {
			status, _ := relay.try(http.MethodGet, "/v1/bridge/items/"+done["queue_id"].(string), nil)
			return status == http.StatusOK
		})
		relay.ask(http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": []string{"item 1", "item 2"}})
		relay.ask(http.MethodPost, "/v1/bridge/send", message)
	})
}

// TestSlowReadersOfTheQueueAreDropped has a reader that never reads more than the first line, of a queue that fits into no buffer
// between. Others get all of it meanwhile; the slow one is dropped, and its items wait.
func TestSlowReadersOfTheQueueAreDropped(t *testing.T) {
	t.Parallel()
	const items, size = 48, 500 << 10
	s := start(t, instance.Settings{})
	relay := s.bridge("relay")
	for i := range items {
		relay.ask(http.MethodPost, "/v1/bridge/queue", map[string]any{"agent": "echo", "content": strings.Repeat("x", size), "queue_id": fmt.Sprint("large-", i)})
	}
	open := func() (*bufio.Reader, net.Conn) {
		connection, err := net.Dial("tcp", s.Settings.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		fmt.Fprintf(connection, "GET /v1/bridge/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", s.Settings.HTTP, relay.token)
		reader := bufio.NewReader(connection)
		if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("the stream begins with %q, %v", line, err)
		}
		return reader, connection
	}
	_, _ = open()
	quick, _ := open()
	for seen := 0; seen < items; {
		line, err := quick.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d items: %v", seen, err)
		}
		if strings.HasPrefix(line, "id: large-") {
			seen++
		}
	}
	eventually(t, "the slow reader is dropped", func() bool { return s.metric("inbox_bridge_readers_dropped_total") > 0 })
	if waiting := relay.pending(); len(waiting) != items {
		t.Errorf("%d of %d items wait", len(waiting), items)
	}
}
