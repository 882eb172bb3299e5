package moderation

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/normalized"
)

// sums are Counters in memory, shared by the nodes of a test.
type sums struct {
	mu   sync.Mutex
	rows map[string]exchange.Count
	fail error
}

func newSums() *sums { return &sums{rows: map[string]exchange.Count{}} }

func (s *sums) AddCounts(_ context.Context, counts []exchange.Count) (result []exchange.Count, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	for _, c := range counts {
		row := s.rows[c.Key]
		row.Key, row.Ends, row.Amount = c.Key, c.Ends, row.Amount+c.Amount
		s.rows[c.Key], result = row, append(result, row)
	}
	return result, nil
}

func (s *sums) Counts(_ context.Context, keys []string) (result []exchange.Count, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if row, known := s.rows[key]; known {
			result = append(result, row)
		}
	}
	return result, s.fail
}

var alice = Subject{Principal: "inbox.example mailto:alice@peer.example", Host: "peer.example", Agent: "echo", Thread: "t"}

func TestMeterAllowsNoMoreThanTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_700_000_000, 0)
		most, window := rapid.Int64Range(1, 5).Draw(t, "most"), time.Minute
		shared := newSums()
		nodes := []*Meter{}
		for range rapid.IntRange(1, 3).Draw(t, "nodes") {
			nodes = append(nodes, NewMeter(MeterOptions{Counters: shared, Sender: []exchange.Rate{{Amount: most, Window: window}}, Now: func() time.Time { return now }}))
		}
		let, told := map[int64]int64{}, map[int64]int{}
		for range rapid.IntRange(1, 80).Draw(t, "messages") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			m := rapid.SampledFrom(nodes).Draw(t, "node")
			excess, over := m.take(t.Context(), alice)
			place := now.Unix() / 60
			switch {
			case !over:
				let[place]++
			case excess.First:
				told[place]++
			}
			if over && !excess.Until.After(now) {
				t.Fatal("the window ended already")
			}
			for _, node := range nodes { // twice: a node learns from its own writing alone
				if err := node.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for place, count := range let {
			if count > most*int64(len(nodes)) || len(nodes) == 1 && count > most {
				t.Fatalf("%d in window %d", count, place)
			}
		}
		for place, count := range told {
			if count > 1 {
				t.Fatalf("told %d times in window %d", count, place)
			}
		}
	})
}

// TestACarrierIsBoundedWhomeverItBrings: a connector that names new people gets no more for it, and one person no more by two of them.
func TestACarrierIsBoundedWhomeverItBrings(t *testing.T) {
	for name, options := range map[string]MeterOptions{
		"rate": {Sender: []exchange.Rate{{Amount: 3, Window: time.Hour}}}, "budget": {Budgets: Budgets{SenderRuns: 3}},
	} {
		options.Counters = newSums()
		m := NewMeter(options)
		take := func(person, carrier string) bool {
			_, over := m.take(t.Context(), Subject{Principal: person, Carrier: carrier, Agent: "echo", Thread: person + carrier, Proven: true})
			return !over
		}
		if !take("ann", "one") || !take("eve", "one") || !take("ann", "one") || take("bob", "one") {
			t.Errorf("%s: the carrier one is not bounded", name)
		}
		if !take("ann", "two") || take("ann", "two") || !take("bob", "two") {
			t.Errorf("%s: ann is not bounded by herself", name)
		}
	}
}

// TestBudgetSurvivesRestart: another process goes on where the last one wrote.
func TestBudgetSurvivesRestart(t *testing.T) {
	shared := newSums()
	now := time.Unix(1_700_000_000, 0)
	start := func() *Meter {
		return NewMeter(MeterOptions{Counters: shared, Budgets: Budgets{SenderRuns: 3, SenderCost: 1_000_000}, Now: func() time.Time { return now }})
	}
	first := start()
	for range 2 {
		if _, over := first.take(t.Context(), alice); over {
			t.Fatal("over the budget too early")
		}
	}
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := start()
	if _, over := second.take(t.Context(), alice); over {
		t.Fatal("one run is left")
	}
	if excess, over := second.take(t.Context(), alice); !over || excess.Limit != "sender_runs" || !excess.First || !excess.Personal {
		t.Fatalf("%+v %v", excess, over)
	}
	now = now.Add(24 * time.Hour)
	third := start()
	third.Spend(t.Context(), alice, 999_999)
	if _, over := third.take(t.Context(), alice); over {
		t.Fatal("a new day has a new budget")
	}
	third.Spend(t.Context(), alice, 1)
	if excess, over := third.take(t.Context(), alice); !over || excess.Limit != "sender_cost" {
		t.Fatalf("%+v %v", excess, over)
	}
}

func TestMeterWithoutDatabase(t *testing.T) {
	shared := newSums()
	shared.fail = errors.New("down")
	m := NewMeter(MeterOptions{Counters: shared, Sender: []exchange.Rate{{Amount: 2, Window: time.Minute}}})
	for range 2 {
		if _, over := m.take(t.Context(), alice); over {
			t.Fatal("limits must not stop a server")
		}
	}
	if err := m.Flush(t.Context()); err == nil {
		t.Fatal("want the database's error")
	}
	if _, over := m.take(t.Context(), alice); !over {
		t.Fatal("the node's own count stays in force")
	}
	shared.fail = nil
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for key, row := range shared.rows {
		if key[:6] == "sender" {
			total += row.Amount
		}
	}
	if total != 2 {
		t.Errorf("%d were written, want 2", total)
	}
	if excess, over := NewMeter(MeterOptions{Counters: shared}).take(t.Context(), alice); over {
		t.Errorf("without limits: %+v", excess)
	}
}

func TestWords(t *testing.T) {
	stop := NewWords(DefaultStopWords)
	for text, want := range map[string]bool{
		"stop": true, "STOP!": true, "  Stop. ": true, "@echo stop": true, "Subject: hello\n\nStop": true, "Aufhören!": true, "СТОП": true, "停止": true,
		"stop the music": false, "don't stop": false, "": false, "stopover": false,
	} {
		if got := stop.Only(normalized.Message{Parts: []normalized.Part{normalized.Text(text)}}); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if (Words{}).Only(normalized.Message{Parts: []normalized.Part{normalized.Text("stop")}}) {
		t.Error("no words")
	}
}

func TestParseRate(t *testing.T) {
	if got, err := ParseRate(" 30 / 1m "); err != nil || got != (exchange.Rate{Amount: 30, Window: time.Minute}) {
		t.Error(got, err)
	}
	for _, bad := range []string{"", "30", "0/1m", "-1/1m", "30/0s", "30/1y", "x/1m", "30/1ms", "30/9999h"} {
		if got, err := ParseRate(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
