package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
)

// TestUnread: a message is unread until its operator read it or a later one of its conversation, each operator by themselves.
func TestUnread(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		ann, bob := exchange.SessionOwner{TokenID: "0197"}, exchange.SessionOwner{Subject: "https://login.example bob"}
		var turns []exchange.TurnRecord
		came := func(thread string) exchange.TurnRecord {
			turn := came("echo", "email", "ann@peer.example", exchange.StateSilent, "hello")
			turn.ThreadID = thread
			accept(t, s, turn)
			turns = append(turns, turn)
			return turn
		}
		first, _, other := came("one"), came("one"), came("two")

		unread := func(owner exchange.SessionOwner, count int, want ...bool) {
			t.Helper()
			for i, turn := range turns {
				if found, err := s.isUnread(ctx, ownerKeyOf(owner), turn); err != nil || found != want[i] {
					t.Errorf("message %d is unread: %v, %v", i, found, err)
				}
			}
			if got, err := s.CountUnread(ctx, owner); err != nil || got != (exchange.UnreadCount{Conversations: count}) {
				t.Errorf("unread: %+v, %v; want %d", got, err, count)
			}
			list, counted, err := s.UnreadConversations(ctx, exchange.ArrivalFilter{Limit: 10}, owner)
			if err != nil || len(list) != count || counted.Conversations != count {
				t.Errorf("%d conversations are listed, %+v, %v; want %d", len(list), counted, err, count)
			}
			for i, one := range list {
				if number := slices.IndexFunc(turns, func(turn exchange.TurnRecord) bool { return turn.ID == one.Turn.ID }); !want[number] || !one.Unread || i > 0 && one.Turn.ID > list[i-1].Turn.ID {
					t.Errorf("message %d is listed as number %d", number, i)
				}
			}
		}
		read := func(owner exchange.SessionOwner, turn exchange.TurnRecord) {
			t.Helper()
			if err := s.MarkRead(ctx, owner, turn); err != nil {
				t.Fatal(err)
			}
		}

		unread(ann, 2, true, true, true)
		read(ann, first)
		unread(ann, 2, false, true, true)
		read(ann, turns[1])
		read(ann, first) // an older one takes nothing back
		unread(ann, 1, false, false, true)
		unread(bob, 2, true, true, true)

		if err := s.MarkAllRead(ctx, ann, turns[1].ID); err != nil {
			t.Fatal(err)
		}
		unread(ann, 1, false, false, true)
		if err := s.MarkAllRead(ctx, bob, "ffffffff-ffff-7fff-bfff-ffffffffffff"); err != nil {
			t.Fatal(err)
		}
		came("one")
		unread(ann, 2, false, false, true, true)
		unread(bob, 1, false, false, false, true)
		if err := s.MarkAllRead(ctx, bob, ""); err != nil {
			t.Fatal(err)
		}
		unread(bob, 0, false, false, false, false)
		if err := s.MarkAllRead(ctx, bob, "yesterday"); !fault.Is(err, fault.Malformed) {
			t.Errorf("a mark that is no id: %v", err)
		}

		// The mark of a conversation goes with its last message.
		read(ann, other)
		if err := s.InTx(ctx, func(tx *Tx) error { return tx.removeTurn(ctx, other.ID) }); err != nil {
			t.Fatal(err)
		}
		if n := marks(t, s); n != 2 {
			t.Errorf("%d marks are left, want one of all for each operator", n)
		}
	})
}

// TestUnreadEnds: what no operator looked at for a month counts as read, and its marks are swept; an operator has so many marks and no more.
func TestUnreadEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx, owner := t.Context(), exchange.SessionOwner{TokenID: "0197"}
		old := came("echo", "email", "ann@peer.example", exchange.StateSilent, "hello")
		old.ID = idOf(time.Now().Add(-unreadFor - time.Hour))
		accept(t, s, old)
		if found, err := s.isUnread(ctx, ownerKeyOf(owner), old); err != nil || found {
			t.Errorf("an old message is unread: %v, %v", found, err)
		}

		err := s.InTx(ctx, func(tx *Tx) error {
			if err := tx.sql.Do(ctx, putReadMark, "key", "thread", old.ID); err != nil {
				return err
			}
			for i := range maxReadMarks {
				id := idOf(time.Now().Add(time.Duration(i-maxReadMarks) * time.Second))
				if err := tx.sql.Do(ctx, putReadMark, ownerKeyOf(owner), fmt.Sprint("thread ", i), id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.sweepOnce(ctx, auditRows); err != nil || marks(t, s) != maxReadMarks {
			t.Errorf("%d marks after the sweep, %v", marks(t, s), err)
		}

		newest := came("echo", "email", "ann@peer.example", exchange.StateSilent, "hello")
		accept(t, s, newest)
		if err := s.MarkRead(ctx, owner, newest); err != nil {
			t.Fatal(err)
		}
		if n := marks(t, s); n != maxReadMarks+1 { // with the one of all
			t.Errorf("%d marks", n)
		}
	})
}

func idOf(at time.Time) string {
	id := uuid.New()
	return firstID(at) + "-7" + id.String()[15:]
}

func marks(t *testing.T, s *Store) (n int) {
	t.Helper()
	if _, err := first(t.Context(), s.engine.Reader(), `SELECT COUNT(*) FROM read_marks`, nil, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
