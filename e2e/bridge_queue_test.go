package e2e

import (
	"bufio"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"inbox/adapters/bridge/contract"
	"inbox/e2e/instance"
	"inbox/normalized"
)

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
