package store

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/queue"
	"inbox/normalized"
)

// benchRowsVariable names the environment variable with the number of rows that BenchmarkLists fills in; 200,000.
const benchRowsVariable = "INBOX_BENCH_ROWS"

// BenchmarkLists asks for the first page of each list, and accepts and finishes a message, at a hundredth of the rows and
// at all of them, and prints the ratio. All rows are tasks of one owner: 1 in 100 of one context, 1 in 500 held, 1 in 500
// failed, 3 with a question at the far end. It fills a database first, so it takes minutes:
// INBOX_BENCH_ROWS=1000000 go test -run '^$' -bench Lists -benchtime 1x ./engine/store
func BenchmarkLists(b *testing.B) {
	rows := 200_000
	if text := os.Getenv(benchRowsVariable); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil || rows < 1000 {
			b.Fatalf("%s must be a number from 1000", benchRowsVariable)
		}
	}

	b.Run("sqlite", func(b *testing.B) { benchLists(b, Options{DataDir: b.TempDir()}, rows) })
	b.Run("postgres", func(b *testing.B) { benchLists(b, Options{URL: storetest.Postgres(b), Connections: 2}, rows) })
}

func benchLists(b *testing.B, options Options, rows int) {
	s, err := Open(b.Context(), options)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()

	fillTurns(b, s, 0, rows/100)
	few := measureLists(b, s)
	fillTurns(b, s, rows/100, rows)
	many := measureLists(b, s)
	for i := range few { // not as a log of the benchmark, which is cut
		fmt.Printf("%-30s %10s at %d rows %10s at %d   ×%.2f\n", few[i].name, few[i].took, rows/100, many[i].took, rows,
			float64(many[i].took)/float64(few[i].took))
	}
}

// fillTurns adds the rows from…to in statements of 10,000.
func fillTurns(b *testing.B, s *Store, from, to int) {
	b.Helper()
	const insert = `WITH RECURSIVE numbers(n) AS (SELECT CAST($4 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < $5)
		INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key, sender_key,
		thread_key, owner_key, reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message, latest, outcome)
		SELECT '01900000-' || SUBSTR(CAST(1000000000000000 + n AS TEXT), 5), 'echo', '@echo@inbox.example', 'a2a', 'p', 'm' || n,
			CASE WHEN n % 100 = 0 THEN 'context' ELSE 't' || n END, 'task ' || n, 'native ' || n, 'sender',
			CASE WHEN n % 100 = 0 THEN CAST($1 AS TEXT) ELSE 'thread ' || n END, CAST($2 AS TEXT), 'reference ' || n,
			CASE WHEN n % 500 = 1 THEN 'held' WHEN n % 500 = 2 THEN 'failed' ELSE 'answered' END,
			'', 1, '', 1000000 + n, 1000000 + n, 'd' || n, '{"context":"c","number":1}', CAST($3 AS TEXT), 1, CASE WHEN n < 3 THEN 'input' ELSE '' END
		FROM numbers`
	body, err := json.Marshal(normalized.Message{ID: "m", Parts: []normalized.Part{normalized.Text("How do I fold a paper crane, and which paper is best?")}})
	if err != nil {
		b.Fatal(err)
	}

	for ; from < to; from += 10_000 {
		err := s.InTx(b.Context(), func(tx *Tx) error {
			return tx.sql.Do(b.Context(), insert, hashKey("echo", "context"), hashKey("echo", "p"), string(body),
				int64(from), int64(min(from+10_000, to)))
		})
		if err != nil {
			b.Fatal(err)
		}
	}

	if err := s.InTx(b.Context(), func(tx *Tx) error { return tx.sql.Do(b.Context(), `ANALYZE turns`) }); err != nil {
		b.Fatal(err)
	}
}

type measured struct {
	name string
	took time.Duration
}

// measureLists returns the median of 15 runs of each operation.
func measureLists(b *testing.B, s *Store) (results []measured) {
	b.Helper()
	measure := func(name string, do func(ctx context.Context) error) {
		took := make([]time.Duration, 15)
		for i := range took {
			begin := time.Now()
			if err := do(b.Context()); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			took[i] = time.Since(begin)
		}

		slices.Sort(took)
		results = append(results, measured{name, took[len(took)/2].Round(time.Microsecond)})
	}

	list := func(name string, filter exchange.TurnFilter) {
		filter.Limit = 51
		measure(name, func(ctx context.Context) error {
			turns, err := s.Turns(ctx, filter)
			if err == nil && len(turns) == 0 {
				return fmt.Errorf("no rows")
			}
			return err
		})
	}

	tasks := exchange.TurnFilter{Agent: "echo", Principal: "p", ReceivedVia: normalized.ViaA2A, Latest: true}
	list("tasks", tasks)
	measure("tasks, counted", func(ctx context.Context) error { _, err := s.CountTurns(ctx, tasks); return err })
	middle := tasks
	middle.Before = "1001500.0"
	list("tasks, page in the depth", middle)
	asking := tasks
	asking.Standing = exchange.StandingInput
	list("tasks that ask", asking)
	done := tasks
	done.Standing, done.ThreadID = exchange.StandingCompleted, "context"
	list("completed tasks of a context", done)
	measure("a task that is not there", func(ctx context.Context) error {
		_, err := s.Turns(ctx, exchange.TurnFilter{Agent: "echo", Principal: "p", ReceivedVia: normalized.ViaA2A, Reference: "none", Limit: 200})
		return err
	})

	list("held", exchange.TurnFilter{States: []string{exchange.StateHeld}})
	list("held of an agent", exchange.TurnFilter{Agent: "echo", States: []string{exchange.StateHeld}})
	list("failed of an agent", exchange.TurnFilter{Agent: "echo", States: []string{exchange.StateFailed}})
	list("a context by arrival", exchange.TurnFilter{Agent: "echo", Principal: "p", ThreadID: "context", ByArrival: true})
	measure("history of a context", func(ctx context.Context) error {
		_, err := s.ThreadExcerpt(ctx, pipeline.ThreadQuery{Agent: "echo", ThreadID: "context", Principals: []string{"peer.example alice"}, Before: lastID, Tail: 20, Head: 2})
		return err
	})

	measure("accept, run and answer", func(ctx context.Context) error { return wholeTurn(ctx, s, newTaskID()) })
	measure("accept in the context", func(ctx context.Context) error { return wholeTurn(ctx, s, "context") })
	return results
}

func newTaskID() string { return uuid.Must(uuid.NewV7()).String() }

// wholeTurn is the life of a message as far as the store sees it.
func wholeTurn(ctx context.Context, s *Store, thread string) error {
	turn := exchange.TurnRecord{
		ID: newTaskID(), Agent: "echo", Principal: "p", ThreadID: thread, State: exchange.StateAccepted, AcceptedAt: time.Now(),
		Route:   json.RawMessage(`{"context":"c","number":1}`),
		Message: normalized.Message{Recipient: "@echo@inbox.example", ReceivedVia: normalized.ViaA2A, Parts: []normalized.Part{normalized.Text("hello")}},
	}
	turn.Reference, turn.Message.ID = turn.ID, turn.ID
	if _, err := s.SentMessages(ctx, turn.Agent, turn.Message.ID, turn.Principal); err != nil {
		return err
	}

	err := s.InTx(ctx, func(tx *Tx) error {
		if _, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: turn.ID, Body: []byte("hello")}); err != nil {
			return err
		}
		return tx.Enqueue(ctx, queue.NewJob{ID: turn.ID, Kind: pipeline.JobKind, Partition: thread, Payload: turn.ID})
	})
	if err != nil {
		return err
	}

	move := func(work func(tx *Tx) error) {
		if err == nil {
			err = s.InTx(ctx, work)
		}
	}
	move(func(tx *Tx) error {
		_, err := tx.MoveTurn(ctx, pipeline.Move{ID: turn.ID, From: []string{exchange.StateAccepted}, To: exchange.StateRunning, Attempt: 1, At: time.Now()})
		return err
	})

	move(func(tx *Tx) error {
		reply := exchange.Reply{ID: newTaskID(), TurnID: turn.ID, Agent: "echo", Response: normalized.Response{Parts: turn.Message.Parts}}
		_, err := tx.AnswerTurn(ctx, pipeline.Move{ID: turn.ID, From: []string{exchange.StateRunning}, To: exchange.StateAnswered, At: time.Now()}, reply, "")
		return err
	})
	return err
}
