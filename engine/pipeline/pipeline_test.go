package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/internal/fault"
	"inbox/normalized"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter)) }

// repeats is an agent that answers with the text it got.
func repeats(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return normalized.Whole(normalized.Response{Parts: turn.Message.Parts})
}

func TestAcceptedMessageIsAnsweredOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		first := e.receive(t, message("m1"))
		if !first.New || first.State != exchange.StateAccepted {
			t.Fatalf("first copy: %+v", first)
		}
		for range 3 {
			again := e.receive(t, message("m1"))
			if again.New || again.TurnID != first.TurnID {
				t.Fatalf("second copy was not recognised: %+v", again)
			}
		}
		turn := e.settled(t, first.TurnID)
		if turn.State != exchange.StateAnswered || normalized.PlainText(turn.Response.Parts) != "hello m1" {
			t.Fatalf("turn %s with %+v", turn.State, turn.Response)
		}
		d := e.peer.next(t)
		if d.Reply.ID != turn.ReplyID || d.NativeID != "reply-"+turn.ReplyID+"@inbox.test" || d.Reply.Message.ID != "m1@peer.test" {
			t.Fatalf("delivery %+v", d)
		}
		entry, found, err := e.store.ContinuedMessage(t.Context(), "echo", d.Reply.Channel, d.Reply.Message.Sender.Principal(), []string{d.NativeID})
		if err != nil || !found || entry.TurnID != first.TurnID {
			t.Fatalf("the reply's wire id does not lead to the thread: %+v %v %v", entry, found, err)
		}
		if e.peer.count() != 1 {
			t.Fatalf("%d deliveries, want 1", e.peer.count())
		}
	})
}

func TestSameIDOfAnotherSenderIsAnotherMessage(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, repeats, agents.Settings{})
		a := e.receive(t, from("ana", "shared", "t1"))
		b := e.receive(t, from("bo", "shared", "t2"))
		if !a.New || !b.New || a.TurnID == b.TurnID {
			t.Fatalf("a stranger burned the id: %+v %+v", a, b)
		}
	})
}

func TestPolicyAtTheDoor(t *testing.T) {
	stranger := func() exchange.Inbound {
		in := message("m1")
		in.Message.Sender.Identities, in.Message.Sender.Verified, in.Message.Sender.AuthMethod = nil, false, normalized.AuthNone
		return in
	}
	robot := message("m2")
	robot.NoReply = "automatic mail"
	unknown := message("m3")
	unknown.Message.Recipient = "@nobody@inbox.test"
	foreign := message("m4")
	foreign.Message.Recipient = "@echo@elsewhere.test"
	empty := message("m5")
	empty.Message.Parts = nil
	for _, test := range []struct {
		name       string
		in         exchange.Inbound
		unverified string
		state      string
		kind       fault.Kind
	}{
		{name: "unverified is held by default", in: stranger(), state: exchange.StateHeld},
		{name: "unverified refused", in: stranger(), unverified: agents.UnverifiedRefuse, kind: fault.Forbidden},
		{name: "unverified answered", in: stranger(), unverified: agents.UnverifiedAnswer, state: exchange.StateAccepted},
		{name: "automatic mail is silent", in: robot, state: exchange.StateSilent},
		{name: "unknown agent", in: unknown, kind: fault.NotFound},
		{name: "agent of another domain", in: foreign, kind: fault.NotFound},
		{name: "no parts", in: empty, kind: fault.Malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := start(t, "sqlite", repeats, agents.Settings{Unverified: test.unverified})
			receipt, err := e.pipeline.Receive(t.Context(), test.in)
			if test.kind != "" {
				if !fault.Is(err, test.kind) {
					t.Fatalf("got %v, want %s", err, test.kind)
				}
				if n, err := e.store.CountTurns(t.Context(), exchange.TurnFilter{}); err != nil || n != 0 {
					t.Fatalf("%d rows were left (%v)", n, err)
				}
				return
			}
			if err != nil || receipt.State != test.state {
				t.Fatalf("got %+v, %v; want state %s", receipt, err, test.state)
			}
		})
	}
}

func TestTurnsOfAThreadRunOneAtATimeInOrder(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var mu sync.Mutex
		var order []string
		running := 0
		agent := func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			mu.Lock()
			running++
			if running > 1 {
				t.Error("two turns of one thread ran at once")
			}
			order = append(order, turn.Message.ID)
			mu.Unlock()
			defer func() { mu.Lock(); running--; mu.Unlock() }()
			return repeats(ctx, turn)
		}
		e := start(t, url, agent, agents.Settings{})
		var want []string
		var last exchange.Receipt
		for i := range 20 {
			in := from("ana", fmt.Sprintf("m%02d", i), "thread")
			want = append(want, in.Message.ID)
			last = e.receive(t, in)
		}
		e.settled(t, last.TurnID)
		mu.Lock()
		defer mu.Unlock()
		if strings.Join(order, " ") != strings.Join(want, " ") {
			t.Fatalf("order %v", order)
		}
	})
}

func TestAgentSeesTheThread(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		seen := make(chan agents.Turn, 2)
		agent := func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			seen <- turn
			return repeats(ctx, turn)
		}
		e := start(t, url, agent, agents.Settings{})
		e.settled(t, e.receive(t, from("ana", "m1", "thread")).TurnID)
		e.settled(t, e.receive(t, from("ana", "m2", "thread")).TurnID)
		await.Receive(t, seen, "the first run")
		history := await.Receive(t, seen, "the second run").Message.History
		if len(history) != 2 || history[0].Role != normalized.RoleUser || history[1].Role != normalized.RoleAssistant ||
			history[1].Sender.Address.String() != "@echo@inbox.test" || normalized.PlainText(history[0].Parts) != "hello m1" {
			t.Fatalf("history %+v", history)
		}
	})
}

func TestFailureBecomesAPlainSentence(t *testing.T) {
	for name, agent := range map[string]agents.Func{
		"error": func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
			return normalized.Failing(errors.New("secret: dial 10.0.0.1"))
		},
		"panic": func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] { panic("secret state") },
		"empty": func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
			return func(func(normalized.Delta, error) bool) {}
		},
		"wrong": func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
			return normalized.Whole(normalized.Response{InReplyTo: "another", Parts: []normalized.Part{normalized.Text("secret")}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, "sqlite", agent, agents.Settings{})
			turn := e.settled(t, e.receive(t, message("m1")).TurnID)
			answer := normalized.PlainText(e.peer.next(t).Reply.Response.Parts)
			if turn.State != exchange.StateFailed || turn.Reason == "" || strings.Contains(answer, "secret") || answer == "" {
				t.Fatalf("state %s, reason %q, answer %q", turn.State, turn.Reason, answer)
			}
		})
	}
}

func TestRunIsRepeatedWhenTheAgentIsDownForAWhile(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if turn.Attempt == 1 {
				return normalized.Failing(fault.RetryIn(0, "the model is busy", nil))
			}
			return repeats(ctx, turn)
		}
		e := start(t, url, agent, agents.Settings{})
		turn := e.settled(t, e.receive(t, message("m1")).TurnID)
		if turn.State != exchange.StateAnswered || turn.Attempt != 2 {
			t.Fatalf("state %s after %d attempts", turn.State, turn.Attempt)
		}
	})
}

func TestSilentAnswerSendsNothing(t *testing.T) {
	e := start(t, "sqlite", func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
		return normalized.Whole(normalized.Response{Silent: true})
	}, agents.Settings{})
	turn := e.settled(t, e.receive(t, message("m1")).TurnID)
	records, err := e.store.Deliveries(t.Context(), delivery.Filter{TurnID: turn.ID, Limit: 10})
	if turn.State != exchange.StateSilent || err != nil || len(records) != 0 {
		t.Fatalf("state %s, %d deliveries, %v", turn.State, len(records), err)
	}
}

func TestCancelStopsARunningAgent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		begun := make(chan struct{})
		agent := func(ctx context.Context, _ agents.Turn) iter.Seq2[normalized.Delta, error] {
			close(begun)
			<-ctx.Done()
			return normalized.Failing(ctx.Err())
		}
		e := start(t, url, agent, agents.Settings{})
		receipt := e.receive(t, message("m1"))
		await.Receive(t, begun, "the run")
		turn, err := e.pipeline.Cancel(t.Context(), receipt.TurnID, "the sender took it back")
		if err != nil || turn.State != exchange.StateCancelled {
			t.Fatalf("%+v, %v", turn, err)
		}
		if _, err := e.pipeline.Cancel(t.Context(), receipt.TurnID, "again"); !fault.Is(err, fault.Conflict) {
			t.Fatalf("second cancel: %v", err)
		}
		if e.settled(t, receipt.TurnID).State != exchange.StateCancelled || e.peer.count() != 0 {
			t.Fatal("a cancelled turn was answered")
		}
	})
}

func TestFollowShowsTheGrowingAnswer(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		more := make(chan struct{})
		agent := func(ctx context.Context, _ agents.Turn) iter.Seq2[normalized.Delta, error] {
			return func(yield func(normalized.Delta, error) bool) {
				for _, text := range []string{"one ", "two ", "three"} {
					if !yield(normalized.Delta{Kind: normalized.DeltaText, Text: text}, nil) {
						return
					}
					hold(ctx, more)
				}
			}
		}
		e := start(t, url, agent, agents.Settings{})
		receipt := e.receive(t, message("m1"))
		var kinds []string
		go func() {
			for range 3 {
				select {
				case more <- struct{}{}:
				case <-t.Context().Done():
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		for event, err := range e.pipeline.Follow(ctx, receipt.TurnID, 0) {
			if err != nil {
				t.Fatalf("after %v: %v", kinds, err)
			}
			kinds = append(kinds, event.Kind)
		}
		if kinds[0] != "turn.accepted" || kinds[len(kinds)-1] != "turn.answered" {
			t.Fatalf("events %v", kinds)
		}
		turn := e.settled(t, receipt.TurnID)
		if normalized.PlainText(turn.Response.Parts) != "one two three" {
			t.Fatalf("answer %q", normalized.PlainText(turn.Response.Parts))
		}
	})
}

func TestTurnThatKillsTheServerIsGivenUp(t *testing.T) {
	asked := 0
	e := start(t, "sqlite", func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		asked++
		return repeats(ctx, turn)
	}, agents.Settings{Unverified: agents.UnverifiedHold})
	in := message("m1")
	in.NoReply = "kept back, so that only this test runs it"
	receipt := e.receive(t, in)
	if err := e.revive(t, receipt.TurnID, 300); err != nil {
		t.Fatal(err)
	}
	if answer := normalized.PlainText(e.peer.next(t).Reply.Response.Parts); asked != 0 || strings.Contains(answer, "server") {
		t.Fatalf("asked %d times, answer %q", asked, answer)
	}
	if turn := e.settled(t, receipt.TurnID); turn.State != exchange.StateFailed || !strings.Contains(turn.Reason, "gave up") {
		t.Fatalf("state %s, reason %q", turn.State, turn.Reason)
	}
}
