package store

import (
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/queue"
)

// TestBacklog: what is due, what comes later and what runs, by kind; dead work does not wait.
func TestBacklog(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		err := s.InTx(ctx, func(tx *Tx) error {
			for _, job := range []queue.NewJob{
				{ID: newRowID(), Kind: "answer", Payload: "a"}, {ID: newRowID(), Kind: "answer", Payload: "b"},
				{ID: newRowID(), Kind: "answer", Payload: "c", RunAt: time.Now().Add(time.Hour)},
			} {
				if err := tx.Enqueue(ctx, job); err != nil {
					return err
				}
			}
			dead := queue.NewJob{ID: newRowID(), Kind: "send", Payload: "d"}
			if err := tx.EnqueueLeased(ctx, dead, "me", time.Minute); err != nil {
				return err
			}
			return tx.sql.Do(ctx, `UPDATE jobs SET state = 'dead' WHERE id = $1`, dead.ID)
		})
		if err != nil {
			t.Fatal(err)
		}

		kinds, looked, err := s.Backlog(ctx, time.Now().Add(time.Second))
		if err != nil || looked != 3 || len(kinds) != 1 {
			t.Fatalf("%+v, %d, %v", kinds, looked, err)
		}
		if one := kinds[0]; one.Kind != "answer" || one.Waiting != 2 || one.Later != 1 || one.Running != 0 || one.Due.IsZero() || time.Since(one.Oldest) > time.Minute {
			t.Errorf("%+v", one)
		}
	})
}

// TestSlowPeers: destinations in the order of their oldest delivery; what was delivered does not wait.
func TestSlowPeers(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		turn := came("echo", "email", "ann@peer.example", exchange.StateAccepted, "hello")
		accept(t, s, turn)
		reply := answer(t, s, turn, "hi")
		err := s.InTx(ctx, func(tx *Tx) error {
			for i, one := range []struct{ destination, state string }{
				{"quick.example", "delivered"}, {"slow.example", "retry"}, {"new.example", "pending"}, {"slow.example", "pending"},
			} {
				id := newRowID()
				if err := tx.sql.Do(ctx, `INSERT INTO deliveries (id, turn_id, reply_id, agent, channel, native_id, destination, address, data, state, reason, attempt, next_at,
					created_at, updated_at) VALUES ($1, $2, $3, 'echo', 'email', '', $4, '', '', $5, '', $6, $7, $7, $7)`,
					id, turn.ID, reply.ID, one.destination, one.state, int64(i), micros(time.Now().Add(time.Duration(i)*time.Second))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		peers, err := s.SlowPeers(ctx, 10)
		if err != nil || len(peers) != 2 {
			t.Fatalf("%+v, %v", peers, err)
		}
		if first, second := peers[0], peers[1]; first.Destination != "slow.example" || first.Deliveries != 2 || first.Attempts != 3 || second.Destination != "new.example" {
			t.Errorf("%+v", peers)
		}
	})
}
