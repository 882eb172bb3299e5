package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/normalized"
)

// BenchmarkMessage accepts and answers mentions in a database that holds 10,000 messages.
func BenchmarkMessage(b *testing.B) {
	const before = 10_000
	for _, name := range []string{"sqlite", "postgres"} {
		b.Run(name, func(b *testing.B) {
			s := open(b, databases[name](b))
			for n := 0; n < before; n += 100 {
				if err := s.Pipeline().InTx(b.Context(), func(tx pipeline.Tx) error {
					for i := range 100 {
						if err := acceptIn(b.Context(), tx, mention(int64(n+i))); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			each(b, 16, func(n int64) error { return acceptAndAnswer(b.Context(), s, mention(before+n)) })
		})
	}
}

// mention is a message of one of 5,000 persons, every fourth in a conversation of its own.
func mention(n int64) exchange.TurnRecord {
	turn := sample(n)
	subject := fmt.Sprintf("https://peer%d.example/users/alice%d", n%50, n*7919%5000)
	turn.Principal = "peer.example " + subject
	turn.Channel, turn.Request, turn.Trace = "activitypub", newID(), "00-"+strings.ReplaceAll(newID(), "-", "")+"-0123456789abcdef-01"
	return turn
}

func acceptIn(ctx context.Context, tx pipeline.Tx, turn exchange.TurnRecord) error {
	original := pipeline.Original{
		Digest: turn.ID, MediaType: "application/activity+json", Body: []byte(strings.Repeat(turn.Message.ID, 2048/len(turn.Message.ID))),
	}
	_, inserted, err := tx.InsertTurn(ctx, turn, original)
	if err != nil || !inserted {
		return err
	}
	return answerIn(ctx, tx, turn)
}

func acceptAndAnswer(ctx context.Context, s *store.Store, turn exchange.TurnRecord) error {
	if err := accept(ctx, s, turn); err != nil {
		return err
	}
	return s.Pipeline().InTx(ctx, func(tx pipeline.Tx) error { return answerIn(ctx, tx, turn) })
}

func answerIn(ctx context.Context, tx pipeline.Tx, turn exchange.TurnRecord) error {
	move := pipeline.Move{ID: turn.ID, From: []string{exchange.StateAccepted}, To: exchange.StateAnswered, At: time.Now(), Attempt: 1}
	reply := exchange.Reply{ID: newID(), TurnID: turn.ID, Agent: turn.Agent, Channel: turn.Channel, CreatedAt: time.Now(), Posts: 1,
		Response: normalized.Response{Parts: []normalized.Part{normalized.Markdown("Hello, " + strings.Repeat("I am well. ", 10))}}}
	_, err := tx.AnswerTurn(ctx, move, reply, "https://inbox.example/"+reply.ID)
	return err
}
