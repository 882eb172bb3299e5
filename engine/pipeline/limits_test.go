package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// TestOverTheLimit: one polite notice in a window, then silence; refused where the peer comes again by itself; a repeat of
// what was accepted stays a duplicate; programs hear nothing.
func TestOverTheLimit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: says("hi"), settings: agents.Settings{AnswerAgents: true}}
		var later lateMeter
		e := composed(t, url, func(o *pipeline.Options) { o.Limiters.Meter = &later }, front)
		later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store, Sender: []exchange.Rate{{Amount: 2, Window: 24 * time.Hour}}})
		for i := range 2 {
			e.answered(t, from("ana", fmt.Sprint("m", i), "t"))
			e.peer.next(t)
		}
		told := e.settled(t, e.receive(t, from("ana", "m2", "t")).TurnID)
		if told.State != exchange.StateRefused || !strings.HasPrefix(told.Reason, "limit:sender") || told.Response == nil || told.Response.Error.Code != "rate_limited" {
			t.Fatalf("%s (%s) %+v", told.State, told.Reason, told.Response)
		}
		if d := e.peer.next(t); !strings.Contains(normalized.PlainText(d.Reply.Response.Parts), "try again after") {
			t.Errorf("notice: %+v", d.Reply.Response)
		}
		if receipt := e.receive(t, from("ana", "m3", "t")); receipt.State != exchange.StateSilent {
			t.Errorf("then silence, got %s", receipt.State)
		}
		again := from("ana", "m4", "t")
		again.Repeats = true
		if _, err := e.pipeline.Receive(t.Context(), again); !fault.Is(err, fault.RateLimited) || fault.Of(err).RetryAfter <= 0 {
			t.Errorf("%v, want a time to come again", err)
		}
		repeated := from("ana", "m0", "t")
		repeated.Repeats = true
		if receipt, err := e.pipeline.Receive(t.Context(), repeated); err != nil || receipt.New {
			t.Errorf("a repeat is a duplicate: %+v %v", receipt, err)
		}
		for i := range 4 {
			bot := from("bot", fmt.Sprint("b", i), "u")
			bot.FromAgent = true
			receipt := e.receive(t, bot)
			if i < 2 {
				e.settled(t, receipt.TurnID)
				e.peer.next(t)
			} else if receipt.State != exchange.StateSilent {
				t.Errorf("a program hears %s", receipt.State)
			}
		}
		if records := e.audits(t, "limit:sender"); len(records) != 1 {
			t.Errorf("audit: %+v", records)
		}
		if e.peer.count() != 5 {
			t.Errorf("%d deliveries, want two answers each and one notice", e.peer.count())
		}
		e.answered(t, from("bea", "m", "v"))
	})
}

// lateMeter is a meter on the database that is opened with the engine.
type lateMeter struct{ *moderation.Meter }

// asked counts the reads of counters.
type asked struct {
	moderation.Counters
	reads atomic.Int64
}

func (a *asked) Counts(ctx context.Context, keys []string) ([]exchange.Count, error) {
	a.reads.Add(1)
	return a.Counters.Counts(ctx, keys)
}

// TestWhatOpensAThreadReadsNoCounts: nothing was counted in a thread that begins, whatever channel says so.
func TestWhatOpensAThreadReadsNoCounts(t *testing.T) {
	var later lateMeter
	e := composed(t, "sqlite", func(o *pipeline.Options) { o.Limiters.Meter = &later }, &script{name: "echo", answer: says("hi")})
	counters := &asked{Counters: e.store}
	later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: counters, Thread: []exchange.Rate{{Amount: 9, Window: 24 * time.Hour}}})
	for i, change := range []func(*exchange.Inbound){
		func(in *exchange.Inbound) { in.Opens = true }, func(in *exchange.Inbound) { in.NewThread = true },
	} {
		in := from("ana", fmt.Sprint("new", i), fmt.Sprint("thread", i))
		change(&in)
		e.receive(t, in)
	}
	if reads := counters.reads.Load(); reads != 0 {
		t.Errorf("%d reads for threads that begin", reads)
	}

	named := from("ana", "same", "same@peer.test") // the name of a thread is not what opens it
	e.receive(t, named)
	if reads := counters.reads.Load(); reads != 1 {
		t.Errorf("%d reads for a thread that has the name of its message", reads)
	}
}

// TestStopWord: honoured for good, acknowledged once, lifted by a start word.
func TestStopWord(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		lists := newBlocks()
		front := &script{name: "echo", answer: says("hi")}
		e := composed(t, url, func(o *pipeline.Options) {
			o.Moderator = lists
			o.Limiters.Stop, o.Limiters.Start = moderation.NewWords(moderation.DefaultStopWords), moderation.NewWords(moderation.DefaultStartWords)
		}, front)
		say := func(user, id, text string) exchange.TurnRecord {
			in := from(user, id, "t "+user)
			in.Message.Parts = []normalized.Part{normalized.Text(text)}
			return e.settled(t, e.receive(t, in).TurnID)
		}
		heard := func(want string) {
			t.Helper()
			if d := e.peer.next(t); !strings.Contains(normalized.PlainText(d.Reply.Response.Parts), want) {
				t.Errorf("heard %+v, want %q", d.Reply.Response.Parts, want)
			}
		}
		say("ana", "1", "hello")
		heard("hi")
		if turn := say("ana", "2", "Stop!"); turn.State != exchange.StateAnswered {
			t.Errorf("%s %s", turn.State, turn.Reason)
		}
		heard("not write to you again")
		for i, text := range []string{"hello?", "stop", "are you there?"} {
			if turn := say("ana", fmt.Sprint("s", i), text); turn.State != exchange.StateSilent || !strings.Contains(turn.Reason, "said stop") {
				t.Errorf("%q: %s %s", text, turn.State, turn.Reason)
			}
		}
		entries, err := e.store.ListEntries(t.Context(), exchange.ListFilter{List: exchange.ListStop})
		if err != nil || len(entries) != 1 || entries[0].Agent != "echo" || entries[0].Reason != "@ana@peer.test" {
			t.Errorf("%+v %v", entries, err)
		}
		say("bea", "b1", "hello")
		heard("hi")
		say("ana", "3", "start")
		heard("Welcome back")
		say("ana", "4", "hello")
		heard("hi")
		if entries, err := e.store.ListEntries(t.Context(), exchange.ListFilter{List: exchange.ListStop}); err != nil || len(entries) != 0 {
			t.Errorf("%+v %v", entries, err)
		}
		if e.peer.count() != 5 || len(front.turns()) != 3 {
			t.Errorf("%d deliveries, %d runs", e.peer.count(), len(front.turns()))
		}
	})
}

// TestStopWordEndsWhatWaits: someone who said stop is not asked for a consent any more, and no one decides about theirs.
func TestStopWordEndsWhatWaits(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		lists := newBlocks()
		front := &script{name: "echo", answer: refunds}
		front.settings.Approvers = []string{owner}
		e := composed(t, url, func(o *pipeline.Options) {
			o.Approvers, o.Moderator, o.Limiters.Stop = &doors{}, lists, moderation.NewWords(moderation.DefaultStopWords)
		}, front)
		parked := e.settled(t, e.receive(t, from("ana", "1", "t")).TurnID)
		others := e.settled(t, e.receive(t, from("bea", "1", "u")).TurnID)
		if parked.State != exchange.StateWaiting || others.State != exchange.StateWaiting {
			t.Fatalf("%s (%s), %s (%s)", parked.State, parked.Reason, others.State, others.Reason)
		}
		stop := from("ana", "2", "v") // in another thread
		stop.Message.Parts = []normalized.Part{normalized.Text("stop")}
		e.settled(t, e.receive(t, stop).TurnID)
		if turn := e.ends(t, parked.ID, exchange.StateCancelled); turn.Reason != "the sender said stop" {
			t.Errorf("reason %q", turn.Reason)
		}
		if issuance, found, err := e.store.DemandOfTurn(t.Context(), parked.ID); err != nil || !found || issuance.Status != policypart.StatusDropped {
			t.Errorf("the demand is %s %v", issuance.Status, err)
		}
		if turn, err := e.store.Turn(t.Context(), others.ID); err != nil || turn.State != exchange.StateWaiting {
			t.Errorf("somebody else's turn is %s %v", turn.State, err)
		}
	})
}

// TestMailBrakes: what is braked is kept with its reason, told to no one, and on record once.
func TestMailBrakes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: says("hi")}
		var later lateMeter
		e := composed(t, url, func(o *pipeline.Options) { o.Limiters.Meter = &later }, front)
		later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store, Conversation: func(string) exchange.ConversationLimits {
			return exchange.ConversationLimits{Thread: []exchange.Rate{{Amount: 4, Window: 24 * time.Hour}}, Same: 2, Machine: 5 * time.Minute}
		}})
		say := func(id, text string, answerOf time.Time) exchange.TurnRecord {
			in := from("ana", id, "t@peer.test")
			in.Message.Parts, in.Repeats, in.AnswerOf = []normalized.Part{normalized.Text(text)}, true, answerOf
			return e.settled(t, e.receive(t, in).TurnID)
		}
		for _, test := range []struct {
			id, text, reason string
			answerOf         time.Time
		}{
			{id: "t", text: "one"}, {id: "2", text: "two"}, {id: "3", text: "two"},
			{id: "4", text: "two", reason: "brake:same: the same words 2 times in a row within 24h"},
			{id: "5", text: "quick", answerOf: time.Now(), reason: "brake:machine: it came "},
			{id: "6", text: "slow", answerOf: time.Now().Add(-time.Hour)},
			{id: "7", text: "five", reason: "brake:answers_thread: 4 answers in this conversation within 24h"},
			{id: "8", text: "six", reason: "brake:answers_thread: "},
		} {
			turn := say(test.id, test.text, test.answerOf)
			if test.reason == "" {
				if turn.State != exchange.StateAnswered {
					t.Fatalf("%q: %s (%s)", test.text, turn.State, turn.Reason)
				}
				e.peer.next(t)
				continue
			}
			if turn.State != exchange.StateSilent || !strings.HasPrefix(turn.Reason, test.reason) {
				t.Errorf("%q: %s (%s), want %s", test.text, turn.State, turn.Reason, test.reason)
			}
			if test.reason == "brake:machine: it came " && strings.HasPrefix(turn.Reason, "brake:machine: it came -") {
				t.Errorf("a clock that went back: %s", turn.Reason)
			}
			events, err := e.store.Events(t.Context(), turn.ID, 0, 10)
			if err != nil || len(events) != 1 || !strings.Contains(string(events[0].Body), turn.Reason) {
				t.Errorf("timeline: %+v %v", events, err)
			}
		}
		for code, want := range map[string]int{"brake:same": 1, "brake:machine": 1, "brake:answers_thread": 1} {
			if records := e.audits(t, code); len(records) != want {
				t.Errorf("%s: %+v", code, records)
			}
		}
		if e.peer.count() != 4 {
			t.Errorf("%d deliveries, want 4 answers and no notice", e.peer.count())
		}
		if err := later.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store, Conversation: func(string) exchange.ConversationLimits {
			return exchange.ConversationLimits{Thread: []exchange.Rate{{Amount: 4, Window: 24 * time.Hour}}}
		}})
		if turn := say("9", "after a restart", time.Time{}); turn.State != exchange.StateSilent {
			t.Errorf("a restart forgot the day: %s", turn.State)
		}
	})
}

// TestStatedDomainUsesUpNoLimit: what a stranger sends in the name of a domain does not count for that domain.
func TestStatedDomainUsesUpNoLimit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: says("hi"), settings: agents.Settings{Unverified: agents.UnverifiedAnswer}}
		var later lateMeter
		e := composed(t, url, func(o *pipeline.Options) { o.Limiters.Meter = &later }, front)
		later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store, Host: []exchange.Rate{{Amount: 2, Window: 24 * time.Hour}}})

		for i := range 3 {
			stranger := from(fmt.Sprint("stranger", i), fmt.Sprint("s", i), fmt.Sprint("s", i))
			stranger.Message.Sender.Identities, stranger.Message.Sender.AuthMethod, stranger.Message.Sender.Verified = nil, normalized.AuthNone, false
			e.answered(t, stranger)
			e.peer.next(t)
		}
		for i := range 2 {
			proven := from(fmt.Sprint("ana", i), fmt.Sprint("m", i), fmt.Sprint("t", i))
			proven.Message.Sender.Address = identity.Stated("@ana@elsewhere.test")
			e.answered(t, proven)
			e.peer.next(t)
		}

		over := from("ana2", "m2", "t2")
		over.Message.Sender.Address = identity.Stated("@ana@other.test")
		if _, err := e.pipeline.Receive(t.Context(), over); !fault.Is(err, fault.RateLimited) {
			t.Errorf("the proven domain counts, not the stated one: %v", err)
		}
	})
}
