package store

import (
	"database/sql"
	"path/filepath"
	"strconv"
	"testing"

	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
)

// TestChannelsOfOldRows moves a database that was in use before channels had names, and lets an older node write one more row of
// each kind while nodes are replaced: both are of the same channel.
func TestChannelsOfOldRows(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		checkChannels(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite, Options{DataDir: directory})
	})
	t.Run("postgres", func(t *testing.T) {
		url := storetest.EmptyPostgres(t)
		checkChannels(t, "pgx", url, database.Postgres, Options{URL: url, Connections: 2})
	})
}

func checkChannels(t *testing.T, driver, url string, kind string, options Options) {
	t.Helper()
	rows := []struct{ receivedVia, route, want string }{
		{"email", `{"v":1}`, "email"},
		{"activitypub", `{"visibility":"public","chat":true}`, "activitypub"},
		{"a2a", `{"context":"c1"}`, "a2a"},
		{"a2a", `{"chat":true,"run":"r1"}`, "chat"},
		{"a2a", `{"surface":"connector","owner":"o"}`, "bridge"},
		{"a2a", `{"surface":"bridge","owner":"o"}`, "bridge"},
		{"a2a", `{"dispatch":"fetched"}`, "local"},
		{"a2a", "", "a2a"},
	}
	insert := func(id string, i int) string {
		return `INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key, sender_key,
			thread_key, owner_key, reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message,
			history_turns, person_shared) VALUES ('` + id + `', 'echo', 'r', '` + rows[i].receivedVia + `', 'p', '` + id + `', 't', '', '` + id +
			`', 'sk', 'tk', 'ok', '', 'answered', '', 1, '', 1, 2, 'd', '` + rows[i].route + `', '{"id":"` + id + `","received_via":"` + rows[i].receivedVia + `"}', 1, 0)`
	}

	pool, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	if err := database.MigrateTo(t.Context(), pool, kind, 19); err != nil {
		t.Fatal(err)
	}
	statements := make([]string, 0, len(rows)+2)
	for i := range rows {
		statements = append(statements, insert("old "+strconv.Itoa(i), i))
	}
	statements = append(statements,
		`INSERT INTO replies (id, turn_id, notice, agent, native_id, native_key, created_at, response, posts, is_open) VALUES ('reply', 'old 4', 0, 'echo', '', '', 5, '{}', 1, 0)`,
		`INSERT INTO deliveries (id, turn_id, reply_id, agent, via, native_id, destination, address, data, state, reason, attempt, next_at,
			created_at, updated_at, action, revision, bulk) VALUES ('delivery', 'old 4', 'reply', 'echo', 'a2a', '', 'b', 'b', '', 'retry', '', 1, 1, 1, 1, '', 0, 0)`,
	)
	for _, statement := range statements {
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}

	s, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, row := range rows {
		id := strconv.Itoa(i)
		if err := s.Execute(t.Context(), insert("new "+id, i)); err != nil {
			t.Fatal(err)
		}
		var stored string
		if _, err := first(t.Context(), s.engine.Reader(), `SELECT channel FROM turns WHERE id = $1`, []any{"old " + id}, &stored); err != nil || stored != row.want {
			t.Errorf("%s %s became %q, %v; want %s", row.receivedVia, row.route, stored, err, row.want)
		}
		newer, err := s.Turn(t.Context(), "new "+id)
		if err != nil || newer.Channel != row.want {
			t.Errorf("%s %s of an older node is read as %q, %v; want %s", row.receivedVia, row.route, newer.Channel, err, row.want)
		}
	}
	record, reply, err := s.Delivery(t.Context(), "delivery")
	if err != nil || record.Channel != "bridge" || reply.Channel != "bridge" {
		t.Errorf("delivery by %q of a reply by %q, %v; want bridge", record.Channel, reply.Channel, err)
	}
}
