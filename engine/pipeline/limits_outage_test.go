package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// outage is a database whose transactions fail in a chosen way after their work was done.
type outage struct {
	pipeline.Store
	how atomic.Pointer[string] // nil = they succeed
}

const (
	refusing  = "refusing"
	panicking = "panicking"
	tooLate   = "too late" // the caller's time ends before the commit

	unanswered = "unanswered" // one is committed, and its caller does not learn it
)

func (o *outage) fails(how string) { o.how.Store(&how) }

var errOutage = errors.New("the database refuses")

func (o *outage) InTx(ctx context.Context, work func(pipeline.Tx) error) error {
	how := o.how.Load()
	if how == nil {
		return o.Store.InTx(ctx, work)
	}
	if *how == unanswered {
		if err := o.Store.InTx(ctx, work); err != nil || !o.how.CompareAndSwap(how, nil) {
			return err
		}
		return fault.Wrap(fault.Unavailable, "try again later", fault.ErrUnknown)
	}
	err := o.Store.InTx(ctx, func(tx pipeline.Tx) error {
		if err := work(tx); err != nil {
			return err
		}
		return errOutage
	})
	switch {
	case !errors.Is(err, errOutage):
		return err
	case *how == panicking:
		panic("the connection broke in an unexpected way")
	case *how == tooLate:
		return fault.Wrap(fault.Unavailable, "try again later", context.DeadlineExceeded)
	}
	return fault.Wrap(fault.Unavailable, "try again later", errOutage)
}

// TestAcknowledgedAfterAnOutageIsAnswered: a sender who repeats a message as long as the database refuses it is answered
// once it is taken, whatever the way in which it was refused, and has used up one message of its limits, at defaults.
func TestAcknowledgedAfterAnOutageIsAnswered(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var later lateMeter
		database := &outage{}
		e := composed(t, url, func(o *pipeline.Options) {
			database.Store, o.Store, o.Limiters.Meter = o.Store, database, &later
		}, &script{name: "echo", answer: says("hi")})
		later.Meter = moderation.NewMeter(moderation.MeterOptions{
			Counters: e.store, Sender: []exchange.Rate{{Amount: 30, Window: 24 * time.Hour}}, Thread: []exchange.Rate{{Amount: 60, Window: 24 * time.Hour}},
			Budgets: moderation.Budgets{SenderRuns: 30},
			Conversation: func(string) exchange.ConversationLimits {
				return exchange.ConversationLimits{
					Thread: []exchange.Rate{{Amount: 10, Window: 24 * time.Hour}}, Sender: []exchange.Rate{{Amount: 20, Window: 24 * time.Hour}}, Same: 3,
				}
			},
		})
		attempt := func(in exchange.Inbound) (receipt exchange.Receipt, err error) {
			defer func() {
				if reason := recover(); reason != nil {
					err = fmt.Errorf("%v", reason)
				}
			}()
			return e.pipeline.Receive(t.Context(), in)
		}
		for i, how := range []string{refusing, panicking, tooLate} {
			in := from("ana", fmt.Sprint("m", i), "t")
			in.Repeats, in.Message.Parts = true, []normalized.Part{normalized.Text("is anybody there?")}
			database.fails(how)
			for range 31 {
				if _, err := attempt(in); err == nil || fault.Is(err, fault.RateLimited) {
					t.Fatalf("%s: %v; want the refusal of the database", how, err)
				}
			}
			for other := range 31 { // messages that are given up use up nothing either
				if _, err := attempt(from("ana", fmt.Sprint("given up ", i, " ", other), "t")); err == nil || fault.Is(err, fault.RateLimited) {
					t.Fatalf("%s: message %d: %v; want the refusal of the database", how, other, err)
				}
			}
			database.how.Store(nil)
			receipt := e.receive(t, in)
			if turn := e.settled(t, receipt.TurnID); turn.State != exchange.StateAnswered {
				t.Fatalf("%s: %s (%s), want an answer", how, turn.State, turn.Reason)
			}
			e.peer.next(t)
			for range 31 { // the acknowledgement was lost, and the peer goes on
				if again := e.receive(t, in); again.New || again.TurnID != receipt.TurnID {
					t.Fatalf("%s: a repeat is %+v", how, again)
				}
			}
		}
		fourth := from("ana", "m3", "t")
		fourth.Repeats, fourth.Message.Parts = true, []normalized.Part{normalized.Text("is anybody there?")}
		if turn := e.settled(t, e.receive(t, fourth).TurnID); turn.State != exchange.StateSilent {
			t.Errorf("the same words for the fourth time are %s", turn.State)
		}
		if n := e.peer.count(); n != 3 {
			t.Errorf("%d answers, want 3", n)
		}
	})
}

// TestNoticeOfTheLimitSurvivesAnOutage: the one notice of a window is told by the attempt that is stored.
func TestNoticeOfTheLimitSurvivesAnOutage(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var later lateMeter
		database := &outage{}
		e := composed(t, url, func(o *pipeline.Options) {
			database.Store, o.Store, o.Limiters.Meter = o.Store, database, &later
		}, &script{name: "echo", answer: says("hi")})
		later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store, Sender: []exchange.Rate{{Amount: 1, Window: 24 * time.Hour}}})
		e.answered(t, from("ana", "m0", "t"))
		e.peer.next(t)
		database.fails(refusing)
		for range 3 {
			if _, err := e.pipeline.Receive(t.Context(), from("ana", "m1", "t")); !fault.Is(err, fault.Unavailable) {
				t.Fatalf("%v, want the refusal of the database", err)
			}
		}
		database.how.Store(nil)
		if turn := e.settled(t, e.receive(t, from("ana", "m1", "t")).TurnID); turn.State != exchange.StateRefused || turn.Response == nil {
			t.Errorf("%s (%s), want the notice", turn.State, turn.Reason)
		}
		e.peer.next(t)
	})
}

// TestMessageThatMayBeStoredIsCounted: a sender whose message was stored without an answer of the database has used up one message, and its
// repeat is a second copy.
func TestMessageThatMayBeStoredIsCounted(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var later lateMeter
		database := &outage{}
		e := composed(t, url, func(o *pipeline.Options) {
			database.Store, o.Store, o.Limiters.Meter = o.Store, database, &later
		}, &script{name: "echo", answer: says("hi")})
		later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store, Sender: []exchange.Rate{{Amount: 1, Window: 24 * time.Hour}}})
		database.fails(unanswered)
		if _, err := e.pipeline.Receive(t.Context(), from("ana", "m0", "t")); fault.OutcomeOf(err) != fault.Unknown || !fault.Is(err, fault.Unavailable) {
			t.Fatalf("%v, want a refusal for now with an unknown outcome", err)
		}

		receipt := e.receive(t, from("ana", "m0", "t"))
		if turn := e.settled(t, receipt.TurnID); receipt.New || turn.State != exchange.StateAnswered {
			t.Errorf("the repeat is new: %t; its turn is %s", receipt.New, turn.State)
		}
		if turn := e.settled(t, e.receive(t, from("ana", "m1", "t")).TurnID); turn.State != exchange.StateRefused {
			t.Errorf("a second message is %s (%s), want the notice of the limit", turn.State, turn.Reason)
		}
	})
}

// spending is a meter that reports what was spent.
type spending struct {
	lateMeter

	costs chan int64
}

func (s *spending) Spend(ctx context.Context, subject moderation.Subject, cost int64) {
	s.lateMeter.Spend(ctx, subject, cost)
	s.costs <- cost
}

// TestAnswerThatMayBeStoredIsLookedFor: an answer whose commit had no answer is found, counted and not given a second time.
func TestAnswerThatMayBeStoredIsLookedFor(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		meter := &spending{costs: make(chan int64, 10)}
		database := &outage{}
		agent := &script{name: "echo", answer: func(agents.Turn) normalized.Response {
			database.fails(unanswered)
			response := texts("It costs a dollar.")
			response.Metadata = map[string]string{"cost": "1"}
			return response
		}}
		e := composed(t, url, func(o *pipeline.Options) {
			database.Store, o.Store, o.Limiters.Meter = o.Store, database, meter
		}, agent)
		meter.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store, Budgets: moderation.Budgets{SenderCost: 1e7}})
		e.answered(t, from("ana", "m0", "t"))
		e.peer.next(t)
		if cost := await.Receive(t, meter.costs, "the cost of the answer to be counted"); cost != 1e6 {
			t.Errorf("the answer cost %d", cost)
		}
		if len(agent.turns()) != 1 || e.peer.count() != 1 {
			t.Errorf("the agent ran %d times and %d answers were sent", len(agent.turns()), e.peer.count())
		}
	})
}

// TestRunThatMayBeMarkedIsAnsweredOnce: a run whose row "running" is on disk without an answer of the database ends with its first answer.
func TestRunThatMayBeMarkedIsAnsweredOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		database := &outage{}
		var marked atomic.Bool
		agent := &script{name: "echo", answer: func(agents.Turn) normalized.Response {
			database.fails(unanswered)
			ticker, enough := time.NewTicker(10*time.Millisecond), time.After(3*time.Second)
			defer ticker.Stop()
			for waiting := true; waiting && database.how.Load() != nil; {
				select {
				case <-ticker.C:
				case <-enough: // the run was marked before this agent was called
					waiting = false
				}
			}
			marked.Store(database.how.Swap(nil) == nil)
			return texts("It took a while.")
		}}
		e := composed(t, url, func(o *pipeline.Options) { database.Store, o.Store = o.Store, database }, agent)
		runs := 0
		for ; !marked.Load(); runs++ {
			if runs == 10 {
				t.Fatal("each of ten runs was marked before its agent was called")
			}
			e.answered(t, from("ana", fmt.Sprintf("m%d", runs), "t"))
			e.peer.next(t)
		}
		if len(agent.turns()) != runs || e.peer.count() != runs {
			t.Errorf("the agent ran %d times and %d answers were sent for %d messages", len(agent.turns()), e.peer.count(), runs)
		}
	})
}
