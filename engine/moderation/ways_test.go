package moderation

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/normalized"
)

// ofMail limits the conversations of one channel.
func ofMail(limits exchange.ConversationLimits) func(string) exchange.ConversationLimits {
	return func(channel string) exchange.ConversationLimits {
		if channel == "email" {
			return limits
		}
		return exchange.ConversationLimits{}
	}
}

func mailMeter(shared *sums) *Meter {
	return NewMeter(MeterOptions{Counters: shared, Conversation: ofMail(exchange.ConversationLimits{
		Thread: []exchange.Rate{{Amount: 10, Window: time.Hour}, {Amount: 50, Window: day}}, Sender: []exchange.Rate{{Amount: 20, Window: time.Hour}}, Same: 3, Machine: 5 * time.Second,
	})})
}

// saying is a mail of alice in a thread.
func saying(thread, text string) Subject {
	s := alice
	s.Channel, s.Thread, s.Said = "email", thread, []normalized.Part{normalized.Text(text)}
	return s
}

// wants takes a message and compares the brake with the expected one; empty = none.
func wants(t *testing.T, m *Meter, s Subject, limit string) {
	t.Helper()
	excess, over := m.take(context.Background(), s)
	if over != (limit != "") || excess.Limit != limit || over && excess.Brake == "" {
		t.Fatalf("want %q, got %q: %q", limit, excess.Limit, excess.Brake)
	}
}

// TestAnswersInAThread: ten an hour and fifty a day, counted on by a server that is started again after a crash.
func TestAnswersInAThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newSums()
		answered := 0
		for hour := range 7 {
			meter := mailMeter(shared) // the one before was killed a second after its last message
			ctx, crash := context.WithCancel(t.Context())
			go func() { _ = meter.Run(ctx) }()
			for i := range 12 {
				s := saying("t", fmt.Sprint("message ", hour, " ", i))
				s.Principal = fmt.Sprint("somebody ", i%3)
				s.Opens = hour == 0 && i == 0
				excess, over := meter.take(ctx, s)
				if !over {
					answered++
					continue
				}
				if excess.Limit != brakeThread || excess.Personal && excess.Brake == "" {
					t.Fatalf("%+v", excess)
				}
			}
			if want := min(10*(hour+1), 50); answered != want {
				t.Fatalf("after %d hours %d answers, want %d", hour+1, answered, want)
			}
			<-time.After(2 * time.Second)
			crash()
			synctest.Wait()
			<-time.After(time.Hour - 2*time.Second)
		}
		next := mailMeter(shared)
		<-time.After(day)
		wants(t, next, saying("t", "a new day"), "")
	})
}

func TestAnswersToASender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meter := mailMeter(newSums())
		for i := range 20 {
			s := saying(fmt.Sprint("thread ", i), fmt.Sprint("message ", i))
			s.Opens = true
			wants(t, meter, s, "")
		}
		wants(t, meter, saying("another thread", "one more"), brakeSender)
		other := saying("t", "hello")
		other.Agent = "other"
		wants(t, meter, other, "")
		unbraked := saying("t", "hello")
		unbraked.Channel = "a2a"
		wants(t, meter, unbraked, "")
		<-time.After(time.Hour)
		wants(t, meter, saying("another thread", "one more"), "")
	})
}

// TestSameWords: three may be answered; other words go on; a restart and a subject line change nothing.
func TestSameWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newSums()
		meter := mailMeter(shared)
		first := saying("t", "Subject: Your request\n\nThank you for  your message.\n")
		first.Opens = true
		wants(t, meter, first, "")
		wants(t, meter, saying("t", "Thank you for your message."), "")
		if err := meter.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		meter = mailMeter(shared)
		wants(t, meter, saying("t", "Thank you for your message."), "")
		wants(t, meter, saying("t", "Thank you for your message."), brakeSame)
		wants(t, meter, saying("t", "Thank you for your message."), brakeSame)
		wants(t, meter, saying("u", "Thank you for your message."), "")
		other := saying("t", "Thank you for your message.")
		other.Principal = "bob"
		wants(t, meter, other, "")
		wants(t, meter, saying("t", "Is somebody there?"), "")
		wants(t, meter, saying("t", "Thank you for your message."), "")
		quoting := saying("u", "everything again\n> older")
		quoting.Said[0].New = "Thank you for your message."
		wants(t, meter, quoting, "")
		wants(t, meter, quoting, "")
		wants(t, meter, quoting, brakeSame)
	})
}

func TestMachinePace(t *testing.T) {
	meter := mailMeter(newSums())
	for waited, limit := range map[time.Duration]string{
		0: "", -time.Second: "", time.Millisecond: brakeMachine, 4999 * time.Millisecond: brakeMachine, 5 * time.Second: "", time.Hour: "",
	} {
		s := saying(waited.String(), waited.String())
		s.Waited = waited
		wants(t, meter, s, limit)
	}
}

// TestThreadsThatEndAtOnceCostNoRow: the message that opens a thread is neither asked for nor written.
func TestThreadsThatEndAtOnceCostNoRow(t *testing.T) {
	shared := newSums()
	meter := NewMeter(MeterOptions{Counters: shared, Thread: []exchange.Rate{{Amount: 60, Window: time.Hour}}, Conversation: ofMail(exchange.ConversationLimits{Thread: []exchange.Rate{{Amount: 10, Window: time.Hour}}, Same: 3})})
	for i := range 100 {
		s := saying(fmt.Sprint("t", i), "hello")
		s.Opens = true
		wants(t, meter, s, "")
	}
	if err := meter.Flush(t.Context()); err != nil || len(shared.rows) != 0 {
		t.Fatalf("%d rows, %v", len(shared.rows), err)
	}
	wants(t, meter, saying("t7", "again"), "")
	if err := meter.Flush(t.Context()); err != nil || len(shared.rows) != 3 {
		t.Fatalf("%d rows, %v; want two limits and the words", len(shared.rows), err)
	}
	for key, row := range shared.rows {
		if row.Amount != 2 && row.Amount>>timesBits == 0 {
			t.Errorf("%s: %d", key, row.Amount)
		}
	}
	for i := range maxLone {
		s := saying(fmt.Sprint("many", i), "hello")
		s.Opens = true
		wants(t, meter, s, "")
	}
	if err := meter.Flush(t.Context()); err != nil || meter.opening > maxLone {
		t.Errorf("%d counters in memory, %v", len(meter.known), err)
	}
}

// TestSameWordsInARow: whatever is said, no one is answered more than three times in a row for the same, and nothing that
// differs is stopped.
func TestSameWordsInARow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meter := NewMeter(MeterOptions{Counters: newSums(), Conversation: ofMail(exchange.ConversationLimits{Same: 3})})
		last, times := "", 0
		for _, text := range rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", " a\n", "c d"})).Draw(t, "texts") {
			said := normalizedWords(text)
			if said != last {
				last, times = said, 0
			}
			_, over := meter.take(context.Background(), saying("t", text))
			if over != (times >= 3) {
				t.Fatalf("%q for the %d. time: over %v", said, times+1, over)
			}
			times++
			if rapid.Bool().Draw(t, "flush") {
				_ = meter.Flush(context.Background())
			}
		}
	})
}

func normalizedWords(text string) string {
	return fmt.Sprint(sumOf([]normalized.Part{normalized.Text(text)}))
}
