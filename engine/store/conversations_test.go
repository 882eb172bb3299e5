package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
)

// TestConversationsAreThoseOfAPlainFilter holds pages of conversations, with their numbers of messages and what is unread, against the same
// computed in Go from all turns.
func TestConversationsAreThoseOfAPlainFilter(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx, owner := t.Context(), exchange.SessionOwner{TokenID: "0197"}
		random := rand.New(rand.NewPCG(7, 7))
		states := []string{exchange.StateSilent, exchange.StateRefused, exchange.StateHeld, exchange.StateAccepted}

		var turns []exchange.TurnRecord
		type key struct{ agent, thread string }
		messages, read := map[key]int{}, map[key]string{}
		err := s.InTx(ctx, func(tx *Tx) error {
			for range 900 {
				turn := came(someAgents[random.IntN(3)], someChannels[random.IntN(3)], someSenders[random.IntN(4)], states[random.IntN(4)], "hello")
				turn.ThreadID = fmt.Sprint("thread ", int(random.ExpFloat64()*20)) // a few have most of the messages
				if _, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: turn.ID}); err != nil {
					return err
				}
				turns = append(turns, turn)
				messages[key{turn.Agent, turn.ThreadID}]++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			turn := turns[random.IntN(len(turns))]
			if err := s.MarkRead(ctx, owner, turn); err != nil {
				t.Fatal(err)
			}
			of := key{turn.Agent, turn.ThreadID}
			read[of] = max(read[of], turn.ID)
		}

		slices.Reverse(turns) // newest first
		plain := func(filter exchange.ArrivalFilter) (heads []ConversationHead) {
			seen := map[key]bool{}
			for _, turn := range turns {
				of := key{turn.Agent, turn.ThreadID}
				if !seen[of] && filter.Selects(&turn) && inTime(filter, turn.ID) {
					heads = append(heads, ConversationHead{Turn: turn, Messages: min(messages[of], MaxCountedOfThread+1), Unread: turn.ID > read[of]})
				}
				seen[of] = true
			}
			return heads
		}
		compare := func(filter exchange.ArrivalFilter, got, want []ConversationHead) {
			t.Helper()
			if len(got) != len(want) {
				t.Fatalf("%+v: %d conversations, want %d", filter, len(got), len(want))
			}
			for i := range got {
				if got[i].Turn.ID != want[i].Turn.ID || got[i].Messages != want[i].Messages || got[i].Unread != want[i].Unread ||
					got[i].Turn.Message.Sender.Address.String() != want[i].Turn.Message.Sender.Address.String() {
					t.Fatalf("%+v: number %d is %+v, want %+v", filter, i, got[i], want[i])
				}
			}
		}

		filters := []exchange.ArrivalFilter{
			{}, {Agent: "echo"}, {Agent: "nobody"}, {Channel: "email"}, {States: []string{exchange.StateHeld}}, {Sender: "@one.example"},
			{Sender: "ann@one.example", States: []string{exchange.StateAccepted, exchange.StateRefused}}, {Since: timeOf(turns[400].ID), Until: timeOf(turns[100].ID)},
		}
		unread := slices.DeleteFunc(plain(exchange.ArrivalFilter{}), func(head ConversationHead) bool { return !head.Unread })
		unread = unread[:MaxUnread+1]
		for _, filter := range filters {
			want := plain(filter)
			for _, limit := range []int{1, 7, 50, 500} {
				filter.Limit, filter.Before = limit, ""
				var got []ConversationHead
				for range len(turns) + 1 {
					page, next, err := s.Conversations(ctx, filter, owner)
					if err != nil || len(page) > limit {
						t.Fatalf("%+v: %d conversations, %v", filter, len(page), err)
					}
					if got = append(got, page...); next == "" {
						break
					}
					filter.Before = next
				}
				compare(filter, got, want)

				filter.Before = ""
				got, count, err := s.UnreadConversations(ctx, filter, owner)
				if err != nil || count != (exchange.UnreadCount{Conversations: MaxUnread, More: true}) {
					t.Fatal(count, err)
				}
				selected := slices.DeleteFunc(slices.Clone(unread), func(head ConversationHead) bool {
					return !filter.Selects(&head.Turn) || !inTime(filter, head.Turn.ID)
				})
				compare(filter, got, selected[:min(limit, len(selected))])
			}
		}

		// Nobody in particular has read everything.
		everybody, _, err := s.Conversations(ctx, exchange.ArrivalFilter{Limit: 500}, exchange.SessionOwner{})
		if err != nil || len(everybody) != len(messages) {
			t.Fatalf("%d conversations, %v; want %d", len(everybody), err, len(messages))
		}
		for _, head := range everybody {
			if head.Unread {
				t.Errorf("%s is unread by nobody", head.Turn.ID)
			}
		}

		if _, _, err := s.Conversations(ctx, exchange.ArrivalFilter{States: []string{"lost"}}, owner); !fault.Is(err, fault.Malformed) {
			t.Errorf("a state that cannot be: %v", err)
		}
		if _, _, err := s.Conversations(ctx, exchange.ArrivalFilter{Before: "\x00"}, owner); !fault.Is(err, fault.Malformed) {
			t.Errorf("a cursor that cannot be: %v", err)
		}
		if _, _, err := s.UnreadConversations(ctx, exchange.ArrivalFilter{States: []string{"lost"}}, owner); !fault.Is(err, fault.Malformed) {
			t.Errorf("a state that cannot be, of what is unread: %v", err)
		}
	})
}
