package store

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/queue"
	"inbox/normalized"
)

// indexesOf are the indexes that look-ups read; those of primary keys have the names of their tables.
var indexesOf = map[string]string{
	exchange.FindTurn: "turns", exchange.FindReply: "replies", exchange.FindDelivery: "deliveries", exchange.FindDemand: "demands",
	exchange.FindDemandState: "demands_state_hash_key", exchange.FindDispatch: "dispatches", exchange.FindToolRequest: "tool_requests",
	exchange.FindTaskRun: "task_runs", exchange.FindAudit: "audit", exchange.FindMessage: "turns_natural", exchange.FindSentMessage: "replies_native",
	exchange.FindReference: "turns_reference", exchange.FindWatch: "turns_reference", exchange.FindConversation: "turns_conversation",
	exchange.FindRequest: "turns_request", exchange.FindTrace: "turns_trace",
}

// lookupLists are the look-ups as lists with an index each.
func lookupLists(t *testing.T) (all []listed) {
	t.Helper()
	for kind, way := range lookups {
		all = append(all, listed{"find by " + kind, way.query, indexesOf[kind], append(way.arguments("x"), int64(21))})
	}
	return append(all, listed{"find by thread", findThread, "turns_thread", []any{"k", "t", int64(21)}})
}

// TestFindPlans: no look-up of an id reads more than a range of an index, on either database.
func TestFindPlans(t *testing.T) {
	if len(lookups) != len(indexesOf) {
		t.Fatalf("%d kinds of ids, and %d indexes", len(lookups), len(indexesOf))
	}

	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		pool := opened(t, Options{DataDir: directory}, "sqlite", sqliteURL(filepath.Join(directory, File)))
		for _, list := range lookupLists(t) {
			for _, one := range sqlitePlan(t, pool, list) {
				if strings.HasPrefix(one.detail, "SCAN") {
					t.Errorf("%s: %s", list.name, one.detail)
				}
			}
		}
	})

	t.Run("postgres", func(t *testing.T) {
		url := storetest.Postgres(t)
		pool := opened(t, Options{URL: url, Connections: 2}, "pgx", url)
		pool.SetMaxOpenConns(1)
		for _, setting := range []string{"enable_seqscan", "enable_bitmapscan"} {
			if _, err := pool.ExecContext(t.Context(), "SET "+setting+" = off"); err != nil {
				t.Fatal(err)
			}
		}
		for _, list := range lookupLists(t) {
			root := postgresPlan(t, pool, list)
			indexes := map[string]bool{}
			root.indexes(t, list.name, indexes)
			if !indexes[list.index] && !indexes[list.index+"_pkey"] {
				t.Errorf("%s reads %v, not %s", list.name, indexes, list.index)
			}
		}
	})
}

// indexes collects the indexes that a plan reads. What it sorts are the few rows of one id.
func (n node) indexes(t *testing.T, name string, into map[string]bool) {
	t.Helper()
	if n.Type == "Seq Scan" || strings.HasPrefix(n.Type, "Bitmap") {
		t.Errorf("%s: walks through %s by %s", name, n.Table, n.Type)
	}
	if n.Index != "" {
		into[n.Index] = true
	}
	for _, child := range n.Plans {
		child.indexes(t, name, into)
	}
}

// TestFindTurns stores two turns of one conversation and finds them by what only the row of the turn knows.
func TestFindTurns(t *testing.T) {
	for name, options := range map[string]func(t *testing.T) Options{
		"sqlite":   func(t *testing.T) Options { t.Helper(); return Options{DataDir: t.TempDir()} },
		"postgres": func(t *testing.T) Options { t.Helper(); return Options{URL: storetest.Postgres(t), Connections: 2} },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), options(t))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()

			long := strings.Repeat("c", 300)
			var ids []string
			for i, conversation := range []string{"talk", "talk", long, "thread"} {
				turn := exchange.TurnRecord{
					ID: uuid.Must(uuid.NewV7()).String(), Agent: "echo", Principal: "p", ThreadID: "thread", State: exchange.StateAnswered, Channel: "a2a",
					Reference: "task", Conversation: conversation, AcceptedAt: time.Now(),
					Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
					Message: normalized.Message{ID: "m" + string(rune('0'+i)), ThreadID: "thread", ReceivedVia: normalized.ViaA2A, Recipient: "@echo@x.example",
						ReceivedAt: identity.Now(), Parts: []normalized.Part{normalized.Text("x")}},
				}
				if i == 0 {
					turn.Request = "REQ-1"
				}
				ids = append(ids, turn.ID)
				if err := s.InTx(t.Context(), func(tx *Tx) error {
					_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}

			all := slices.Clone(ids)
			slices.Reverse(all)
			for _, test := range []struct {
				kind, id string
				want     []string
			}{
				{exchange.FindConversation, "talk", []string{ids[1], ids[0]}}, {exchange.FindConversation, long, ids[2:3]},
				{exchange.FindConversation, "thread", nil}, // the thread's own name is not kept twice
				{exchange.FindRequest, "REQ-1", ids[:1]}, {exchange.FindTrace, "0AF7651916CD43DD8448EB211C80319C", all},
				{exchange.FindReference, "task", all}, {exchange.FindMessage, "m1", ids[1:2]}, {exchange.FindTurn, ids[3], ids[3:]},
				{exchange.FindRequest, "", nil}, {exchange.FindRequest, "a\x00b", nil}, {"no kind", ids[0], nil},
			} {
				if got, err := s.FindTurns(t.Context(), test.kind, test.id, 10); err != nil || !slices.Equal(got, test.want) {
					t.Errorf("%s %.20q: %v, %v, want %v", test.kind, test.id, got, err, test.want)
				}
			}
			if got, err := s.FindThread(t.Context(), "echo", "thread", 3); err != nil || !slices.Equal(got, all[:3]) {
				t.Errorf("thread: %v, %v", got, err)
			}
			if turn, err := s.Turn(t.Context(), ids[0]); err != nil || turn.Request != "REQ-1" {
				t.Errorf("request %q, %v", turn.Request, err)
			}

			// What was said in a conversation is deleted with the name that opens it.
			if _, err := s.ForgetThread(t.Context(), "echo", "thread"); err != nil {
				t.Fatal(err)
			}
			if got, err := s.FindTurns(t.Context(), exchange.FindConversation, "talk", 10); err != nil || len(got) > 0 {
				t.Errorf("after it was deleted: %v, %v", got, err)
			}
		})
	}
}

// TestHandlesMigration: what was stored before is found by the names of its conversations, too.
func TestHandlesMigration(t *testing.T) {
	rows := func(t *testing.T, driver, url string, kind string) {
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
		if err := database.MigrateTo(t.Context(), pool, kind, 30); err != nil {
			t.Fatal(err)
		}
		for id, row := range map[string][2]string{
			"t1": {"a2a", `{"context":"mine","number":1}`}, "t2": {"chat", `{"chat":true,"session":"s-1"}`}, "t3": {"bridge", `{"surface":"bridge","session":"s-2"}`},
			"t4": {"tasks", `{"task_run":"r","task_session":"s-3"}`}, "t5": {"a2a", `{"context":"thread"}`}, "t6": {"email", `{"session":"no"}`},
			"t7": {"chat", `{}`}, "t8": {"chat", ``}, "t9": {"chat", `{"chat":true,"session":"` + strings.Repeat("x", 300) + `"}`},
		} {
			if _, err := pool.ExecContext(t.Context(), `INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key,
				sender_key, thread_key, owner_key, reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message, channel)
				VALUES ('`+id+`', 'echo', 'r', 'a2a', 'p', '`+id+`', 'thread', '', '`+id+`', 's', 't', 'o', '', 'answered', '', 1, '', 1, 1, '', '`+row[1]+`', '{}', '`+row[0]+`')`); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(t *testing.T, options Options) {
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
		for name, want := range map[string]string{"mine": "t1", "s-1": "t2", "s-2": "t3", "s-3": "t4", "thread": "", "no": ""} {
			got, err := s.FindTurns(t.Context(), exchange.FindConversation, name, 5)
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s: %v, %v, want %s", name, got, err, want)
			}
		}
	}

	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		rows(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite)
		check(t, Options{DataDir: directory})
	})
	t.Run("postgres", func(t *testing.T) {
		url := storetest.EmptyPostgres(t)
		rows(t, "pgx", url, database.Postgres)
		check(t, Options{URL: url, Connections: 2})
	})
}

// TestReviveJob: a dead job runs again once, behind its time and in its place, and others of its member are hastened.
func TestReviveJob(t *testing.T) {
	for name, options := range map[string]func(t *testing.T) Options{
		"sqlite":   func(t *testing.T) Options { t.Helper(); return Options{DataDir: t.TempDir()} },
		"postgres": func(t *testing.T) Options { t.Helper(); return Options{URL: storetest.Postgres(t), Connections: 2} },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), options(t))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()

			id := uuid.Must(uuid.NewV7()).String()
			if err := s.InTx(t.Context(), func(tx *Tx) error {
				return tx.Enqueue(t.Context(), queue.NewJob{ID: id, Kind: "work", Partition: "p", Payload: "x", Group: "echo", Member: "peer"})
			}); err != nil {
				t.Fatal(err)
			}
			view := s.Queue()
			shares, err := view.Shares(t.Context(), "work", queue.Share{}, 5)
			if err != nil || len(shares) != 1 {
				t.Fatalf("%v, %v", shares, err)
			}
			claim := queue.Claim{Kind: "work", Owner: "me", Lease: time.Minute, Takes: []queue.Take{{Share: shares[0], Count: 1}}}
			jobs, err := view.Claim(t.Context(), claim)
			if err != nil || len(jobs) != 1 {
				t.Fatalf("%v, %v", jobs, err)
			}
			if revived, err := s.ReviveJob(t.Context(), id, 0); revived || err != nil {
				t.Errorf("a running job: %v, %v", revived, err)
			}
			if err := view.Settle(t.Context(), jobs[0].Lease, queue.Outcome{Kind: queue.Dead, Reason: "no"}); err != nil {
				t.Fatal(err)
			}
			if count, err := s.CountDeadJobs(t.Context()); err != nil || count != 1 {
				t.Errorf("%d dead, %v", count, err)
			}

			for i, want := range []bool{true, false} {
				if revived, err := s.ReviveJob(t.Context(), id, time.Hour); revived != want || err != nil {
					t.Errorf("call %d: %v, %v", i, revived, err)
				}
			}
			job, found, err := s.Job(t.Context(), id)
			if err != nil || !found || job.State != jobScheduled || job.Attempt != 0 || time.Until(job.RunAt) < 50*time.Minute || job.Group != "echo" {
				t.Errorf("%+v, %v, %v", job, found, err)
			}

			if err := s.InTx(t.Context(), func(tx *Tx) error { return tx.HastenJobs(t.Context(), "work", "peer") }); err != nil {
				t.Fatal(err)
			}
			if _, err := view.Revive(t.Context(), "work"); err != nil {
				t.Fatal(err)
			}
			if jobs, err = view.Claim(t.Context(), claim); err != nil || len(jobs) != 1 || jobs[0].ID != id || jobs[0].Attempt != 1 {
				t.Errorf("claimed %v, %v", jobs, err)
			}
			if _, found, err := s.Job(t.Context(), "none"); found || err != nil {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
}
