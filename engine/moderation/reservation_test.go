package moderation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/normalized"
)

// take is a message that is stored at once, or refused.
func (m *Meter) take(ctx context.Context, s Subject) (Excess, bool) {
	counted, excess, over := m.Reserve(ctx, s)
	if over {
		excess, counted = m.Report(ctx, excess)
	}
	counted.Commit()
	return excess, over
}

// written sums what a limit has counted by what the database holds and what waits to be written.
func (m *Meter) written(shared *sums, limit string) int64 {
	total := int64(0)
	for key, row := range shared.rows {
		if strings.HasPrefix(key, limit+" ") {
			total += row.Amount
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, c := range m.known {
		if strings.HasPrefix(key, limit+" ") {
			total += c.pending
		}
	}
	return total
}

// TestCountIsTheNumberOfStoredMessages: whatever arrives, fails, is stored, and comes again, on one node or two, limits
// have counted each stored message once and nothing else.
func TestCountIsTheNumberOfStoredMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shared := newSums()
		options := MeterOptions{
			Counters: shared, Sender: []exchange.Rate{{Amount: 1000, Window: time.Hour}}, Thread: []exchange.Rate{{Amount: 1000, Window: time.Hour}}, Total: []exchange.Rate{{Amount: 1000, Window: time.Hour}},
			Conversation: ofMail(exchange.ConversationLimits{Thread: []exchange.Rate{{Amount: 1000, Window: time.Hour}}, Same: 200}),
			Now:          func() time.Time { return time.Unix(1_700_000_000, 0) }, Logger: slog.New(slog.DiscardHandler),
		}
		nodes := []*Meter{NewMeter(options), NewMeter(options)}
		type attempt struct {
			id string
			of *Reservation
		}
		var storing []attempt
		stored := map[string]bool{} // the natural keys in the database
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"arrive", "arrive", "end", "end", "flush", "outage"}).Draw(t, "step") {
			case "arrive":
				id := fmt.Sprint("m", rapid.IntRange(0, 9).Draw(t, "message"))
				s := saying("t", "words of "+id)
				s.Message = id
				of, excess, over := rapid.SampledFrom(nodes).Draw(t, "node").Reserve(context.Background(), s)
				if over {
					t.Fatalf("%+v", excess)
				}
				storing = append(storing, attempt{id, of})
			case "end":
				if len(storing) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(storing)-1).Draw(t, "which")
				one := storing[i]
				storing = append(storing[:i], storing[i+1:]...)
				if rapid.Bool().Draw(t, "the transaction succeeds") && !stored[one.id] {
					stored[one.id] = true
					one.of.Commit()
				}
				one.of.Release() // what is deferred
			case "flush":
				_ = rapid.SampledFrom(nodes).Draw(t, "flushed").Flush(context.Background())
			case "outage":
				shared.fail = nil
				if rapid.Bool().Draw(t, "down") {
					shared.fail = errors.New("down")
				}
			}
		}
		for _, one := range storing {
			one.of.Release()
		}
		shared.fail = nil
		for _, node := range nodes {
			if err := node.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
			if len(node.storing) != 0 {
				t.Fatalf("%d messages are still being stored", len(node.storing))
			}
			for key, c := range node.known {
				if c.reserved != 0 || len(c.saying) != 0 {
					t.Fatalf("%s: %d reserved, %v said", key, c.reserved, c.saying)
				}
			}
		}
		for _, limit := range []string{"sender", "thread", "total", brakeThread} {
			if got := nodes[0].written(shared, limit); got != int64(len(stored)) {
				t.Fatalf("%s counted %d, stored %d", limit, got, len(stored))
			}
		}
	})
}

// TestAcknowledgedAfterAnOutageIsNotTheSameAgain is a mail at defaults whose sender heard 451 three times: the fourth
// attempt was kept unanswered as the same words for the fourth time.
func TestAcknowledgedAfterAnOutageIsNotTheSameAgain(t *testing.T) {
	meter := mailMeter(newSums())
	mail := saying("t", "hello")
	mail.Message, mail.Opens = "m", true
	for range 30 {
		of, excess, over := meter.Reserve(t.Context(), mail)
		if over {
			t.Fatalf("a failed attempt was counted: %+v", excess)
		}
		of.Release()
	}
	wants(t, meter, mail, "")
	if got := meter.written(newSums(), brakeSender); got != 1 {
		t.Errorf("%d answers are counted, want 1", got)
	}
}

// TestCopiesShareAReservation: copies that arrive while the first one is being stored are one message.
func TestCopiesShareAReservation(t *testing.T) {
	meter := NewMeter(MeterOptions{Counters: newSums(), Sender: []exchange.Rate{{Amount: 2, Window: time.Hour}}})
	one := alice
	one.Message = "m"
	var copies []*Reservation
	for range 5 {
		of, excess, over := meter.Reserve(t.Context(), one)
		if over {
			t.Fatalf("%+v", excess)
		}
		copies = append(copies, of)
	}
	copies[1].Commit()
	for _, of := range copies {
		of.Release()
		of.Commit() // no effect any more
	}
	other := alice
	other.Message = "n"
	if _, over := meter.take(t.Context(), other); over {
		t.Error("five copies took more than one place")
	}
	other.Message = "o"
	if _, over := meter.take(t.Context(), other); !over {
		t.Error("two messages are the limit")
	}
}

// TestFullOfWhatMayYetFail: a limit that only messages under way fill decides nothing that lasts.
func TestFullOfWhatMayYetFail(t *testing.T) {
	meter := mailMeter(newSums())
	var underWay []*Reservation
	for i := range 3 {
		s := saying("t", "hello")
		s.Message = fmt.Sprint(i)
		of, _, _ := meter.Reserve(t.Context(), s)
		underWay = append(underWay, of)
	}
	if _, excess, over := meter.Reserve(t.Context(), saying("t", "hello")); !over || !excess.Contended || excess.Limit != brakeSame {
		t.Fatalf("%v %+v", over, excess)
	}
	for _, of := range underWay {
		of.Commit()
	}
	if _, excess, over := meter.Reserve(t.Context(), saying("t", "hello")); !over || excess.Contended {
		t.Fatalf("%v %+v", over, excess)
	}
}

// TestNoticeThatCouldNotBeStoredIsToldAgain: what is told once in a window is told by the attempt that succeeds.
func TestNoticeThatCouldNotBeStoredIsToldAgain(t *testing.T) {
	shared := newSums()
	meter := NewMeter(MeterOptions{Counters: shared, Sender: []exchange.Rate{{Amount: 1, Window: time.Hour}}})
	if _, over := meter.take(t.Context(), alice); over {
		t.Fatal("over the limit at once")
	}
	for range 3 {
		_, excess, _ := meter.Reserve(t.Context(), alice)
		excess, told := meter.Report(t.Context(), excess)
		if !excess.First {
			t.Fatalf("%+v", excess)
		}
		told.Release()
		if err := meter.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if excess, _ := meter.take(t.Context(), alice); !excess.First {
		t.Fatalf("%+v", excess)
	}
	if excess, _ := meter.take(t.Context(), alice); excess.First {
		t.Fatalf("told twice: %+v", excess)
	}
	shared.fail = errors.New("down")
	other := alice
	other.Principal = "bob"
	_, _ = meter.take(t.Context(), other)
	_, excess, _ := meter.Reserve(t.Context(), other)
	if excess, _ = meter.Report(t.Context(), excess); !excess.Contended {
		t.Errorf("without the database: %+v", excess)
	}
}

// TestTheOldestIsForgotten: a full table forgets what was not used for longest, and nothing that waits to be written.
func TestTheOldestIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newSums()
		meter := NewMeter(MeterOptions{Counters: shared, Sender: []exchange.Rate{{Amount: 5, Window: time.Hour}}})
		flood := func(name string, many int) {
			for i := range many {
				_, _ = meter.take(t.Context(), Subject{Principal: fmt.Sprint(name, i), Agent: "echo"})
			}
		}
		const recent = 5000
		flood("old ", maxCounted/2)
		flood("used last ", recent)
		if err := meter.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		flood("new ", maxCounted/2+1000)
		if err := meter.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(meter.known); n != maxCounted || meter.recent.Len() != n {
			t.Fatalf("%d counters in memory, want %d", n, maxCounted)
		}
		known := 0
		for key := range meter.known {
			if strings.Contains(key, "used last ") || strings.Contains(key, "new ") {
				known++
			}
		}
		if want := maxCounted/2 + 1000 + recent; known != want {
			t.Errorf("%d of the newest are known, want all %d", known, want)
		}
	})
}

// BenchmarkReserve is the price of a message that begins a thread, of senders that this node knows.
func BenchmarkReserve(b *testing.B) {
	meter := NewMeter(MeterOptions{
		Counters: newSums(), Sender: []exchange.Rate{{Amount: 1 << 30, Window: time.Minute}, {Amount: 1 << 30, Window: time.Hour}}, Host: []exchange.Rate{{Amount: 1 << 30, Window: time.Minute}},
		Agent: []exchange.Rate{{Amount: 1 << 30, Window: time.Minute}}, Total: []exchange.Rate{{Amount: 1 << 30, Window: time.Minute}}, Thread: []exchange.Rate{{Amount: 1 << 30, Window: time.Hour}},
		Conversation: ofMail(exchange.ConversationLimits{Thread: []exchange.Rate{{Amount: 1 << 30, Window: time.Hour}}, Sender: []exchange.Rate{{Amount: 1 << 30, Window: time.Hour}}, Same: 3}),
	})
	s := alice
	s.Channel, s.Opens, s.Said = "email", true, []normalized.Part{normalized.Text("hello there")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Message, s.Thread = fmt.Sprint("m", i), fmt.Sprint("t", i)
		of, _, _ := meter.Reserve(b.Context(), s)
		of.Commit()
		if i%5000 == 0 {
			_ = meter.Flush(b.Context())
		}
	}
}
