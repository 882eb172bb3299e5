package store

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/exchange"
	"inbox/normalized"
)

func TestCountHours(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		var ids []string
		for i, state := range []string{
			exchange.StateAccepted, exchange.StateAccepted, exchange.StateHeld, exchange.StateFailed, exchange.StateRefused, exchange.StateSilent,
			exchange.StateWaiting, exchange.StateCancelled,
		} {
			agent := []string{"echo", "helper"}[i/6]
			turn := came(agent, "email", "ann@peer.example", state, "hello")
			turn.AcceptedAt = time.Now().Add(-3 * time.Second)
			accept(t, s, turn)
			ids = append(ids, turn.ID)
			if state == exchange.StateAccepted {
				answer(t, s, turn, "hi")
			}
		}
		priced := normalized.Response{Parts: []normalized.Part{normalized.Text("hi")}, Metadata: map[string]string{"cost": "0.25"}}
		setResponse(t, s, ids[0], priced)

		now := time.Now()
		hour := timeOf(ids[0]).UTC().Truncate(time.Hour)
		count := func(at time.Time) {
			t.Helper()
			if err := s.CountHours(ctx, at); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 { // the hours of a month before, some at a time
			count(now)
		}

		read := func(filter TrafficFilter) (sum Traffic) {
			t.Helper()
			filter.Since, filter.Until = hour.Add(-48*time.Hour), hour.Add(48*time.Hour)
			list, err := s.Traffic(ctx, filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range list {
				if one.Channel != "email" || !one.At.Truncate(filter.Step).Equal(one.At) {
					t.Errorf("%+v", one)
				}
				sum.Add(one)
			}
			return sum
		}
		want := Traffic{Received: 8, Answered: 2, Held: 1, Failed: 1, Refused: 1, Silent: 1, Waiting: 1, Cancelled: 1, Spend: 250_000, Took: Latencies{2: 2}}
		for _, step := range []time.Duration{time.Hour, 24 * time.Hour} {
			if got := read(TrafficFilter{Step: step}); !cmp.Equal(got, want) {
				t.Errorf("by %s: %s", step, cmp.Diff(want, got))
			}
		}
		if got := read(TrafficFilter{Step: time.Hour, Agent: "helper"}); got.Received != 2 || got.Waiting != 1 || got.Cancelled != 1 {
			t.Errorf("of one agent: %+v", got)
		}

		// A message that goes on later is counted anew, in its hour.
		answer(t, s, exchange.TurnRecord{ID: addAccepted(t, s), Agent: "echo"}, "later")
		count(now.Add(2 * time.Minute))
		if got := read(TrafficFilter{Step: time.Hour}); got.Received != 9 || got.Answered != 3 {
			t.Errorf("counted again: %+v", got)
		}

		// Rows that retention removed stay counted, and the hour is settled.
		removeTurns(t, s, ids)
		count(now.Add(5 * time.Hour))
		if got := read(TrafficFilter{Step: time.Hour}); got.Received != 9 || got.Spend != 250_000 {
			t.Errorf("after retention: %+v", got)
		}
		if due := dueOf(t, s, hour); due != 0 {
			t.Errorf("the hour is counted again at %d", due)
		}

		count(now.Add(keepHours + 3*time.Hour))
		if got := read(TrafficFilter{Step: time.Hour}); got.Received != 0 {
			t.Errorf("after its end: %+v", got)
		}
	})
}

func setResponse(t *testing.T, s *Store, turnID string, response normalized.Response) {
	t.Helper()
	err := s.InTx(t.Context(), func(tx *Tx) error {
		return tx.sql.Do(t.Context(), `UPDATE replies SET response = $1 WHERE turn_id = $2`, `{"in_reply_to":"m","parts":[],"metadata":{"cost":"`+response.Metadata["cost"]+`"}}`, turnID)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func addAccepted(t *testing.T, s *Store) string {
	t.Helper()
	turn := came("echo", "email", "bob@peer.example", exchange.StateAccepted, "hello")
	accept(t, s, turn)
	return turn.ID
}

func removeTurns(t *testing.T, s *Store, ids []string) {
	t.Helper()
	err := s.InTx(t.Context(), func(tx *Tx) error {
		for _, id := range ids {
			if err := tx.erasure().removeTurn(t.Context(), id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func dueOf(t *testing.T, s *Store, hour time.Time) (due int64) {
	t.Helper()
	found, err := first(t.Context(), s.engine.Reader(), `SELECT due_at FROM counted_hours WHERE hour = $1`, []any{micros(hour)}, &due)
	if err != nil || !found {
		t.Fatalf("%t, %v", found, err)
	}
	return due
}

func TestHoursAreCountedMoreRarely(t *testing.T) {
	hour := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		after time.Duration // the end of the hour
		open  bool
		want  time.Duration // 0 = settled
	}{
		{-30 * time.Minute, false, 30 * time.Second},
		{time.Minute, false, 30 * time.Second},
		{2 * time.Hour, false, 0},
		{8 * time.Hour, true, time.Hour},
		{20 * 24 * time.Hour, true, 24 * time.Hour},
		{31 * 24 * time.Hour, true, 0},
	} {
		now := hour.Add(time.Hour + test.after)
		want := int64(0)
		if test.want > 0 {
			want = micros(now.Add(test.want))
		}
		if got := dueAgain(hour, now, test.open); got != want {
			t.Errorf("%s after its end, open %t: %s", test.after, test.open, instant(got).Sub(now))
		}
	}
}

func TestQuantiles(t *testing.T) {
	var took Latencies
	if got := took.Quantile(.95); got != 0 {
		t.Errorf("of nothing: %s", got)
	}
	for range 95 {
		took.count(1500 * time.Millisecond)
	}
	for range 5 {
		took.count(40 * time.Hour)
	}
	if got := took.Quantile(.95); got != 2*time.Second {
		t.Errorf("p95 %s", got)
	}
	if got := took.Quantile(.99); got != 24*time.Hour {
		t.Errorf("p99 %s", got)
	}
}

// TestStatisticsPlans: no count walks through the messages of other hours, on either database.
func TestStatisticsPlans(t *testing.T) {
	directory := migrated(t)
	s, err := Open(t.Context(), Options{DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := sql.Open("sqlite", sqliteURL(filepath.Join(directory, File)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = database.Close() }()

	for _, query := range []string{selectHour, selectDueHours, selectCounted} {
		for _, step := range plan(t, database, query) {
			if strings.HasPrefix(step, "SCAN") && !harmless(step) {
				t.Errorf("%s: %s", query, step)
			}
		}
	}
	if steps := plan(t, database, selectHour); !slices.ContainsFunc(steps, func(step string) bool { return strings.Contains(step, "id>? AND id<?") }) {
		t.Errorf("an hour is not a range of ids: %q", steps)
	}
}
