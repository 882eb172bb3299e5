package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"inbox/exchange"
)

// TestWithAct: the record of an act commits with its first change, once, and not with one that is undone.
func TestWithAct(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := WithAct(t.Context(), exchange.AuditRecord{Code: "operator:command.block.add", Principal: "operator:command ann", Detail: "inbox block add"})
		undone := errors.New("undone")
		put := func(ctx context.Context, key string, result error) error {
			return s.InTx(ctx, func(tx *Tx) error {
				if err := tx.PutDocument(ctx, "acts", key, []byte("x"), time.Time{}); err != nil {
					return err
				}
				return result
			})
		}
		records := func() int {
			t.Helper()
			found, err := s.AuditRecords(t.Context(), exchange.AuditFilter{Code: "operator:command.*", Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range found {
				if one.Principal != "operator:command ann" || one.Detail != "inbox block add" || one.At.IsZero() {
					t.Errorf("%+v", one)
				}
			}
			return len(found)
		}

		if err := put(ctx, "one", undone); !errors.Is(err, undone) || records() != 0 {
			t.Errorf("%v, %d records of what was undone", err, records())
		}
		for range 3 {
			if err := put(ctx, "one", nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(t.Context(), "two", nil); err != nil || records() != 1 {
			t.Errorf("%v, %d records", err, records())
		}
	})
}
