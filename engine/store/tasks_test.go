package store_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
)

// TestTaskRuns stores runs once, finds and lists them, and rolls them back with their transaction.
func TestTaskRuns(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, store.Options{URL: url(t)})
			insert := func(run exchange.TaskRun, then error) (inserted bool, err error) {
				err = s.InTx(t.Context(), func(tx *store.Tx) (err error) {
					if inserted, err = tx.InsertTaskRun(t.Context(), run); err != nil {
						return err
					}
					return then
				})
				return inserted, err
			}
			row := func(id, owner, turn string) exchange.TaskRun {
				return exchange.TaskRun{ID: id, Owner: owner, TurnID: turn, Started: json.RawMessage(`{"run_id":"` + id + `"}`)}
			}

			undone := errors.New("undone")
			if _, err := insert(row("a", "token:1", "01"), undone); !errors.Is(err, undone) {
				t.Fatal(err)
			}
			for i, one := range []exchange.TaskRun{row("a", "token:1", "01"), row("b", "token:2", "02"), row("control:01", "token:1", "03")} {
				if inserted, err := insert(one, nil); err != nil || !inserted {
					t.Fatalf("%d: %v, %v", i, inserted, err)
				}
			}
			if inserted, err := insert(row("a", "token:2", "04"), nil); err != nil || inserted {
				t.Errorf("a run id was taken twice: %v, %v", inserted, err)
			}

			found, is, err := s.TaskRun(t.Context(), "a")
			if err != nil || !is || found.ID != "a" || found.Owner != "token:1" || found.TurnID != "01" || string(found.Started) != `{"run_id":"a"}` || found.CreatedAt.IsZero() {
				t.Errorf("found %+v, %v, %v", found, is, err)
			}
			for _, id := range []string{"c", "", "x\x00", "task:a"} {
				if _, is, err := s.TaskRun(t.Context(), id); is || err != nil {
					t.Errorf("%q: %v, %v", id, is, err)
				}
			}
			if note, err := s.RunNotes().Get(t.Context(), "control:01"); note != nil || err != nil {
				t.Errorf("a run is a note: %v, %v", note, err)
			}

			ids := func(filter exchange.TaskRunFilter) (list []string) {
				runs, err := s.TaskRuns(t.Context(), filter)
				if err != nil {
					t.Fatal(err)
				}
				for _, run := range runs {
					list = append(list, run.ID)
				}
				return list
			}
			for want, filter := range map[string]exchange.TaskRunFilter{
				"control:01 b a": {Limit: 10}, "control:01 a": {Owner: "token:1", Limit: 10}, "b a": {Before: "03", Limit: 10}, "control:01": {Limit: 1}, "": {Owner: "token:3", Limit: 10},
			} {
				if got := strings.Join(ids(filter), " "); got != want {
					t.Errorf("%+v: %q, want %q", filter, got, want)
				}
			}

			for _, bad := range []exchange.TaskRun{row("", "o", "05"), row(strings.Repeat("x", 508), "o", "05"), row("x\x00", "o", "05")} {
				if _, err := insert(bad, nil); !fault.Is(err, fault.Malformed) {
					t.Errorf("%q: %v", bad.ID, err)
				}
			}
			if _, err := insert(exchange.TaskRun{ID: "big", Started: make([]byte, 65<<10), TurnID: "06"}, nil); err == nil {
				t.Error("a begin of 65 KiB was stored")
			}
		})
	}
}
