package store

import (
	"database/sql"
	"path/filepath"
	"testing"

	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
)

// TestPeopleOfAConnectorInOldRows: before migration 00046 the principal of all people of a connector was its token. Their messages are
// in no history but that of their conversation, and the connector still has their tasks.
func TestPeopleOfAConnectorInOldRows(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		checkOldCarriers(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite, Options{DataDir: directory})
	})
	t.Run("postgres", func(t *testing.T) {
		url := storetest.EmptyPostgres(t)
		checkOldCarriers(t, "pgx", url, database.Postgres, Options{URL: url, Connections: 2})
	})
}

func checkOldCarriers(t *testing.T, driver, url string, kind string, options Options) {
	t.Helper()
	const token = "inbox.example token:1"
	pool, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	if err := database.MigrateTo(t.Context(), pool, kind, 44); err != nil {
		t.Fatal(err)
	}
	for id, message := range map[string]string{
		"own": `{"id":"own"}`, "ann": `{"id":"ann","sender":{"identities":[{"proof":{"type":"signed-attestation"}}]}}`,
	} {
		if _, err := pool.ExecContext(t.Context(), `INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key, sender_key,
			thread_key, owner_key, reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message,
			history_turns, person_shared, channel, latest) VALUES ('`+id+`', 'echo', 'r', 'a2a', '`+token+`', '`+id+`', '`+id+`', 'task', '`+id+`', 'sk', '`+
			hashKey("echo", id)+`', '`+hashKey("echo", token)+`', '`+id+`', 'answered', '', 1, '', 1, 2, 'd', '{}', '`+message+`', 1, 1, 'a2a', 1)`); err != nil {
			t.Fatal(err)
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

	excerpt, err := s.ThreadExcerpt(t.Context(), pipeline.ThreadQuery{Agent: "echo", ThreadID: "new", Before: "z", Tail: 9, Principals: []string{token}, Elsewhere: true})
	if err != nil || len(excerpt.Tail) != 1 || excerpt.Tail[0].Turn.ID != "own" {
		t.Errorf("the history of the token has %+v, %v", excerpt.Tail, err)
	}
	tasks, err := s.Turns(t.Context(), exchange.TurnFilter{Agent: "echo", Carrier: token, Latest: true, Limit: 9})
	if err != nil || len(tasks) != 2 || tasks[0].Carrier != "" {
		t.Errorf("the token has the tasks %+v, %v", tasks, err)
	}
}
