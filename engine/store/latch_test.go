package store_test

import (
	"testing"
	"time"

	"inbox/agents/runtime/tool/request"
	"inbox/engine/notice"
	"inbox/engine/store"
	"inbox/exchange"
)

// TestFirstOfTwoDecides: rows that decide who acts are changed once, also if the second caller read them before the first one wrote.
func TestFirstOfTwoDecides(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, store.Options{URL: url(t)})
			at := time.Now().Truncate(time.Millisecond)
			in := func(work func(tx *store.Tx) error) {
				t.Helper()
				if err := s.InTx(t.Context(), work); err != nil {
					t.Fatal(err)
				}
			}
			notices := func(work func(tx notice.Tx) (bool, error)) (done bool) {
				t.Helper()
				err := s.Notifier().InTx(t.Context(), func(tx notice.Tx) (err error) {
					done, err = work(tx)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				return done
			}

			in(func(tx *store.Tx) error {
				_, err := tx.InsertToolRequest(t.Context(), exchange.ToolRequest{ID: "r1", Agent: "a", TurnID: "t1", ToolName: "pay", Status: request.StatusPending, CreatedAt: at, TimeoutAt: at.Add(time.Hour)})
				return err
			})
			for i, status := range []string{request.StatusCompleted, request.StatusTimeout, request.StatusCompleted} {
				in(func(tx *store.Tx) error {
					ended, err := tx.EndToolRequest(t.Context(), "r1", status, []byte(`{"number":`+string(rune('0'+i))+`}`), at)
					if ended != (i == 0) {
						t.Errorf("end %d of a request: %v", i, ended)
					}
					return err
				})
			}
			kept, err := s.ToolRequest(t.Context(), "r1")
			if err != nil || kept.Status != request.StatusCompleted || string(kept.Result) != `{"number":0}` {
				t.Errorf("the request is %+v, %v", kept, err)
			}

			for i := range 2 {
				if begun := notices(func(tx notice.Tx) (bool, error) { return tx.BeginDigest(t.Context(), time.Time{}, at) }); begun != (i == 0) {
					t.Errorf("digest %d begins: %v", i, begun)
				}
			}

			condition := exchange.NoticeCondition{Kind: exchange.NoticeDisk, Subject: "full", State: exchange.ConditionOpen, Since: at, SeenAt: at}
			notices(func(tx notice.Tx) (bool, error) { return true, tx.BeginCondition(t.Context(), condition) })
			for i := range 2 {
				told := condition
				told.ToldAt, told.LastTold = at, at
				if moved := notices(func(tx notice.Tx) (bool, error) { return tx.MoveCondition(t.Context(), condition, told) }); moved != (i == 0) {
					t.Errorf("the same condition is told, %d: %v", i, moved)
				}
			}
		})
	}
}
