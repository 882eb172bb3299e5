package store

import (
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// firstRows are rows as the first migration kept them: a turn for each way in which history is counted, of which the
// first has a reply on its way.
var firstRows = []string{
	turnRow("t1", "answered", "r1"), turnRow("t2", "held", ""), turnRow("t3", "silent", ""), turnRow("t4", "accepted", ""),
	turnRow("t5", "silent", "r5"),
	`INSERT INTO events VALUES ('t1', 1, 'turn.accepted', '', 1)`,
	`INSERT INTO replies VALUES ('r1', 't1', 'echo', 'note 1', 'key 1', 5, '{"in_reply_to":"m","parts":[{"kind":"text","content":"hi"}]}')`,
	`INSERT INTO replies VALUES ('r5', 't5', 'echo', '', '', 6, '{"in_reply_to":"m","silent":true}')`,
	`INSERT INTO deliveries VALUES ('d1', 't1', 'r1', 'echo', 'email', 'note 1', 'peer.example', 'a@peer.example', '{"a":1}',
		'retry', 'busy', 2, 7, 8, 9)`,
	`INSERT INTO documents VALUES ('email/progress', 'd1', 'utf8', '{"done":["b@peer.example","c@peer.example"]}', 9)`,
	`INSERT INTO tokens VALUES ('k1', 'alice', 'echo', 'aa', 1, 0)`,
}

func turnRow(id, state, replyID string) string {
	return `INSERT INTO turns VALUES ('` + id + `', 'echo', '@echo@x.example', 'email', 'p', '` + id + `', 'thread', '', 'nk ` + id + `', 'sk', '` +
		hashKey("echo", "thread") + `', 'ok', '', '` + state + `', 'why', 1, '` + replyID + `', 1, 2, 'd', '{}', '{"id":"` + id + `"}')`
}

// TestSecondMigration moves a database that was in use to the second schema: nothing is lost and all of it works.
func TestSecondMigration(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		build(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite)
		checkMigrated(t, Options{DataDir: directory})
	})

	t.Run("postgres", func(t *testing.T) {
		url := storetest.EmptyPostgres(t)
		build(t, "pgx", url, database.Postgres)
		checkMigrated(t, Options{URL: url, Connections: 2})
	})
}

// TestOlderSchemaIsLeftWithoutUpgrade: a command leaves a database alone on which a server of an earlier version may run. After that server was replaced
// the command works, and it makes the schema of an empty database.
func TestOlderSchemaIsLeftWithoutUpgrade(t *testing.T) {
	newest, err := database.KnownSchema()
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, older, empty Options) {
		t.Helper()
		version := func(options Options, noUpgrade bool) (version int64, err error) {
			options.NoUpgrade = noUpgrade
			opened, err := Open(t.Context(), options)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, opened.Close()) }()
			return opened.SchemaVersion(t.Context())
		}

		for range 2 { // the second one finds that the first one changed nothing
			_, err := version(older, true)
			refused, is := errors.AsType[*database.OlderSchema](err)
			if !is || refused.Found >= newest || refused.Known != newest || !strings.Contains(refused.Error(), "restart the server with this program") {
				t.Fatalf("opened, or refused with %v", err)
			}
		}
		if got, err := version(older, false); err != nil || got != newest {
			t.Errorf("a server gets the schema %d, %v; want %d", got, err, newest)
		}
		for name, options := range map[string]Options{"an upgraded database": older, "an empty one": empty} {
			if got, err := version(options, true); err != nil || got != newest {
				t.Errorf("%s has the schema %d, %v; want %d", name, got, err, newest)
			}
		}
	}

	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		buildWith(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite, newest-1, nil)
		check(t, Options{DataDir: directory}, Options{DataDir: t.TempDir()})
	})
	t.Run("postgres", func(t *testing.T) {
		url := storetest.EmptyPostgres(t)
		buildWith(t, "pgx", url, database.Postgres, newest-1, nil)
		check(t, Options{URL: url, Connections: 2}, Options{URL: storetest.EmptyPostgres(t), Connections: 2})
	})
}

// build makes a database of the first schema.
func build(t *testing.T, driver, url string, kind string) {
	t.Helper()
	buildWith(t, driver, url, kind, 1, firstRows)
}

// buildWith makes a database of an older schema with rows.
func buildWith(t *testing.T, driver, url string, kind string, version int64, rows []string) {
	t.Helper()
	pool, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}()

	if err := database.MigrateTo(t.Context(), pool, kind, version); err != nil {
		t.Fatal(err)
	}

	for _, statement := range rows {
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func checkMigrated(t *testing.T, options Options) {
	t.Helper()
	s, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	if diff := cmp.Diff("t1 2 0, t2 0 0, t3 1 0, t4 1 0, t5 1 0", historyColumns(t, s)); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	turn, err := s.Turn(t.Context(), "t1")
	if err != nil || turn.ReplyID != "r1" || turn.Response == nil || turn.Response.Parts[0].Content != "hi" || turn.Shared {
		t.Errorf("turn %+v, %v", turn, err)
	}

	record, reply, err := s.Delivery(t.Context(), "d1")
	if err != nil || record.State != "retry" || record.Attempt != 2 || string(record.Data) != `{"a":1}` || reply.ID != "r1" ||
		!slices.Equal(record.Done, []string{"b@peer.example", "c@peer.example"}) || reply.Notice != 0 || reply.CreatedAt.UnixMicro() != 5 || reply.Message.ID != "t1" {
		t.Errorf("delivery %+v of %+v, %v", record, reply, err)
	}

	token, found, err := s.TokenByHash(t.Context(), "aa")
	if err != nil || !found || token.Scope != exchange.TokenPeer || token.Name != "alice" {
		t.Errorf("token %+v, %v, %v", token, found, err)
	}

	checkReplyRules(t, s)
}

// checkReplyRules: the tables that were made anew keep their keys.
func checkReplyRules(t *testing.T, s *Store) {
	t.Helper()
	insert := func(reply exchange.Reply) error {
		return s.InTx(t.Context(), func(tx *Tx) error { return tx.InsertReply(t.Context(), reply, "") })
	}
	if err := insert(exchange.Reply{ID: "r1b", TurnID: "t1"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("second answer: %v, want fault.Conflict", err)
	}

	if err := insert(exchange.Reply{ID: "r1n", TurnID: "t1", Notice: 1}); err != nil {
		t.Errorf("notice: %v", err)
	}
	if err := insert(exchange.Reply{ID: "r9", TurnID: "t9"}); err == nil {
		t.Error("a reply to no turn was stored")
	}

	err := s.InTx(t.Context(), func(tx *Tx) error {
		return tx.InsertDelivery(t.Context(), delivery.Record{ID: "d9", TurnID: "t1", ReplyID: "r9"})
	})
	if err == nil {
		t.Error("a delivery of no reply was stored")
	}
}

func historyColumns(t *testing.T, s *Store) string {
	t.Helper()
	var rows []string
	query := `SELECT t.id || ' ' || CAST(t.history_turns AS TEXT) || ' ' || CAST(t.person_shared AS TEXT) FROM turns t ORDER BY t.id`
	if err := s.engine.Reader().Each(t.Context(), query, nil, func(r row) error {
		var text string
		err := r.Scan(&text)
		rows = append(rows, text)
		return err
	}); err != nil {
		t.Fatal(err)
	}

	return strings.Join(rows, ", ")
}

// TestHistoryTurns follows how many entries of a history a turn makes, through its life.
func TestHistoryTurns(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{URL: url(t), DataDir: t.TempDir(), Connections: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()

			historyLife(t, s)
		})
	}
}

func historyLife(t *testing.T, s *Store) {
	t.Helper()
	step := func(want string, work func(tx *Tx) error) {
		t.Helper()
		if err := s.InTx(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		if got := historyColumns(t, s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	insert := func(id, state string, shared bool) func(tx *Tx) error {
		return func(tx *Tx) error {
			_, _, err := tx.InsertTurn(t.Context(), exchange.TurnRecord{
				ID: id, Agent: "echo", State: state, Shared: shared, AcceptedAt: time.Now(), Message: normalized.Message{ID: id},
			}, pipeline.Original{})
			return err
		}
	}

	move := func(id, from, to string) func(tx *Tx) error {
		return func(tx *Tx) error {
			_, err := tx.MoveTurn(t.Context(), pipeline.Move{ID: id, From: []string{from}, To: to, At: time.Now()})
			return err
		}
	}

	answer := func(id string, notice int, response normalized.Response) func(tx *Tx) error {
		return func(tx *Tx) error {
			reply := exchange.Reply{ID: id + string(rune('a'+notice)), TurnID: id, Notice: notice, Response: response}
			return tx.InsertReply(t.Context(), reply, "")
		}
	}

	spoken := normalized.Response{Parts: []normalized.Part{normalized.Text("hi")}}
	step("a 1 1", insert("a", exchange.StateAccepted, true))
	step("a 1 1, b 0 0", insert("b", exchange.StateHeld, false))
	step("a 2 1, b 0 0", answer("a", 1, spoken))
	step("a 1 1, b 0 0", answer("a", 0, normalized.Response{Silent: true}))
	step("a 2 1, b 0 0", answer("a", 2, spoken))
	step("a 2 1, b 0 0", move("a", exchange.StateAccepted, exchange.StateAnswered))
	step("a 2 1, b 0 0", answer("b", 1, spoken)) // an answer does not let a held message in
	step("a 2 1, b 1 0", move("b", exchange.StateHeld, exchange.StateAccepted))
	step("a 2 1, b 2 0", answer("b", 0, spoken))
	step("a 2 1, b 0 0", move("b", exchange.StateAccepted, exchange.StateHeld))
	step("a 2 1, b 0 0", move("b", exchange.StateHeld, exchange.StateRefused))
}
