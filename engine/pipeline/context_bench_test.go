package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// BenchmarkLongThread makes the history of a message in a thread of 10,000 turns: read and trim. With scope person the
// turns are in a hundred threads of the same sender.
func BenchmarkLongThread(b *testing.B) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		for _, scope := range []string{agents.HistoryThread, agents.HistoryPerson} {
			for _, turns := range []int{10, 1000, 10_000} {
				b.Run(fmt.Sprintf("%s/%s/turns=%d", name, scope, turns), func(b *testing.B) {
					benchmarkThread(b, url(b), scope, turns)
				})
			}
		}
	}
}

func benchmarkThread(b *testing.B, url, scope string, turns int) {
	opened, err := store.Open(b.Context(), store.Options{URL: url, DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := opened.Close(); err != nil {
			b.Error(err)
		}
	}()
	last := fill(b, opened.Pipeline(), scope, turns/2)
	service := pipeline.New(pipeline.Options{Store: opened.Pipeline()})
	agent := agents.Entry{
		Settings: agents.Settings{HistoryScope: scope}.WithDefaults(), Profile: exchange.AgentProfile{Name: "echo", Address: "@echo@inbox.test"},
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		message, breakpoint, err := service.WithHistory(b.Context(), agent, last)
		if err != nil || len(message.History) < min(turns-2, 12) || breakpoint == nil {
			b.Fatalf("%d turns, %v", len(message.History), err)
		}
	}
}

// fill stores answered exchanges and returns the last one.
func fill(tb testing.TB, s pipeline.Store, scope string, exchanges int) (last exchange.TurnRecord) {
	tb.Helper()
	for begin := 0; begin < exchanges; begin += 500 {
		err := s.InTx(tb.Context(), func(tx pipeline.Tx) (err error) {
			for n := begin; n < min(begin+500, exchanges) && err == nil; n++ {
				thread := "thread"
				if scope == agents.HistoryPerson {
					thread = fmt.Sprint("thread ", n%100)
				}
				last, err = stored(tb.Context(), tx, from("ana", fmt.Sprint("m", n), thread).Message, scope == agents.HistoryPerson)
			}
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return last
}

// stored writes a message of 400 bytes and its answer.
func stored(ctx context.Context, tx pipeline.Tx, message normalized.Message, shared bool) (exchange.TurnRecord, error) {
	message.Parts = []normalized.Part{normalized.Text(message.ID + strings.Repeat(" how are you today?", 20))}
	message.ReceivedAt = identity.Now()
	turn := exchange.TurnRecord{
		ID: newID(), Agent: "echo", Principal: message.Sender.Principal(), ThreadID: message.ThreadID,
		State: exchange.StateAnswered, Message: message, Shared: shared, AcceptedAt: time.Now(),
	}
	if _, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{}); err != nil {
		return turn, err
	}
	return turn, tx.InsertReply(ctx, exchange.Reply{
		ID: newID(), TurnID: turn.ID, Agent: "echo", CreatedAt: time.Now(),
		Response: normalized.Response{InReplyTo: message.ID, Parts: []normalized.Part{normalized.Text(strings.Repeat("I am fine. ", 30))}},
	}, "")
}
