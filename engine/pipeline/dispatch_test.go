package pipeline_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

const b, c = "@b@inbox.test", "@c@inbox.test"

func TestAgentAsksAnAgentOfThisServer(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: relays("Will it rain?", "@B@inbox.test")}
		other := &script{name: "b", answer: says("It will.")}
		e := composed(t, url, nil, front, other)
		turn := e.answered(t, message("m1"))
		if diff := cmp.Diff([]string{"They said:", "It will."}, plain(turn.Response)); diff != "" {
			t.Fatal(diff)
		}
		runs, asked := front.turns(), other.turns()
		if len(runs) != 2 || runs[0].ID != runs[1].ID || runs[1].Attempt != 2 || len(asked) != 1 {
			t.Fatalf("%d runs of the first agent, %d of the other", len(runs), len(asked))
		}
		got := asked[0].Message
		proof := localEvidence(got.Sender)
		if proof == nil || proof.Issuer != "inbox.test" || proof.Subject != "acct:echo@inbox.test" || proof.Proof.Type != identity.ProofTransport ||
			!cmp.Equal(proof.OnBehalfOf, []string{"mailto:ana@peer.test"}) || !cmp.Equal(proof.Audience, identity.Audience{b}) {
			t.Errorf("evidence %+v", got.Sender.Identities)
		}
		if got.Sender.Address.String() != "@echo@inbox.test" || got.Recipient != b || normalized.PlainText(got.Parts) != "Will it rain?" {
			t.Errorf("message %+v", got)
		}
		want := &normalized.AgentChain{Hop: 1, MaxHops: 4}
		if diff := cmp.Diff(want, got.RecipientCapabilities.AgentChain); diff != "" || got.RecipientCapabilities.MentionRelay.Kind != normalized.RelayNone {
			t.Errorf("capabilities %+v", got.RecipientCapabilities)
		}
		if trace := runs[1].Message.ReceivedTrace; trace == nil || trace.InReplyTo != got.ID || trace.Outcome() != normalized.StatusCompleted {
			t.Errorf("trace %+v", trace)
		}
		if e.peer.next(t); e.peer.count() != 1 {
			t.Errorf("%d deliveries", e.peer.count())
		}
		e.timeline(t, turn.ID, "turn.waiting", exchange.EventDispatchCalled, exchange.EventDispatchAnswered, "turn.accepted", "turn.answered")
	})
}

// timeline wants the kinds in this order, with others between them.
func (e *engine) timeline(t *testing.T, turnID string, kinds ...string) {
	t.Helper()
	events, err := e.store.Events(t.Context(), turnID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, event := range events {
		seen = append(seen, event.Kind)
		if len(kinds) > 0 && event.Kind == kinds[0] {
			kinds = kinds[1:]
		}
	}
	if len(kinds) > 0 {
		t.Errorf("%v is missing in %v", kinds, seen)
	}
}

func TestConversationOfTwoAgentsKeepsItsThread(t *testing.T) {
	front := &script{name: "echo", answer: relays("Go on.", b)}
	other := &script{name: "b", answer: says("One more thing.")}
	e := composed(t, "sqlite", nil, front, other)
	e.answered(t, from("ana", "m1", "t1"))
	e.answered(t, from("ana", "m2", "t1"))
	e.answered(t, from("bo", "m3", "t2"))
	asked := other.turns()
	if len(asked) != 3 {
		t.Fatalf("asked %d times", len(asked))
	}
	if asked[0].Message.ThreadID != asked[1].Message.ThreadID || len(asked[1].Message.History) != 2 {
		t.Errorf("the second question has a history of %d turns", len(asked[1].Message.History))
	}
	if asked[2].Message.ThreadID == asked[0].Message.ThreadID || len(asked[2].Message.History) != 0 {
		t.Error("another person's conversation shows")
	}
}

// TestConversationOfTwoAgentsGoesOnAfterAnUpgrade: a conversation whose id is from before ids were made of names keeps it, for its person alone.
func TestConversationOfTwoAgentsGoesOnAfterAnUpgrade(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		other := &script{name: "b", answer: says("One more thing.")}
		e := composed(t, url, nil, &script{name: "echo", answer: relays("Go on.", b)}, other)
		principal := from("ana", "m0", "t1").Message.Sender.Principal()
		sum := sha256.Sum256(fmt.Appendf(nil, "4:echo2:t1%d:%s%d:%s", len(b), b, len(principal), principal))
		earlier := "dispatch-" + hex.EncodeToString(sum[:])
		if err := e.store.InTx(t.Context(), func(tx *store.Tx) error {
			return tx.InsertDispatch(t.Context(), exchange.Dispatch{
				ID: "01a20969-0000-7000-8000-000000000000", TurnID: "01a20969-0000-7000-8000-000000000001", Number: 1, Agent: "echo", To: b,
				ThreadID: earlier, State: exchange.DispatchDone,
			})
		}); err != nil {
			t.Fatal(err)
		}

		e.answered(t, from("ana", "m1", "t1"))
		e.answered(t, from("ana", "m2", "t2"))
		e.answered(t, from("bo", "m3", "t1"))
		asked := other.turns()
		if len(asked) != 3 || asked[0].Message.ThreadID != earlier {
			t.Fatalf("the conversation goes on in %s, want %s", asked[0].Message.ThreadID, earlier)
		}
		for _, turn := range asked[1:] {
			if !exchange.IsConversationID(turn.Message.ThreadID) {
				t.Errorf("another conversation is in %s", turn.Message.ThreadID)
			}
		}
	})
}

func TestSeveralAnswers(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: relays("Say something.", b, c, "@nobody@inbox.test", "@d@elsewhere.test")}
		broken := normalized.Response{Status: normalized.StatusFailed, Error: &normalized.ResponseError{Code: "x", Message: "No paper."}}
		e := composed(t, url, nil, front, &script{name: "b", answer: says("One.", "Two.")},
			&script{name: "c", answer: func(agents.Turn) normalized.Response { return broken }})
		turn := e.answered(t, message("m1"))
		if diff := cmp.Diff([]string{
			"They said:", b + ":", "One.", "Two.", c + ":", "No paper.",
			"@nobody@inbox.test:", "@nobody@inbox.test could not be reached.", "@d@elsewhere.test:", "@d@elsewhere.test could not be reached.",
		}, plain(turn.Response)); diff != "" {
			t.Error(diff)
		}
		trace := front.turns()[1].Message.ReceivedTrace
		if trace.Status != normalized.StatusFailed || trace.Error == nil || trace.Error.Code != "x" {
			t.Errorf("a failure among the answers makes no success: %+v", trace)
		}
	})
}

// TestAnswersAtOnce: of answers that come at the same time exactly one wakes the turn.
func TestAnswersAtOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		far := []string{"@a@far.test", "@b@far.test", "@c@far.test", "@d@far.test"}
		front := &script{name: "echo", answer: relays("Now!", far...)}
		var mu sync.Mutex
		waiting, gate := 0, make(chan struct{})
		e := composed(t, url, func(o *pipeline.Options) {
			o.Caller = callFunc(func(ctx context.Context, _ exchange.Dispatch) (normalized.Response, error) {
				mu.Lock()
				mine := gate
				if waiting++; waiting == len(far) {
					waiting, gate = 0, make(chan struct{})
					close(mine)
				}
				mu.Unlock()
				hold(ctx, mine)
				return texts("here"), nil
			})
		}, front)
		for i := range 10 {
			turn := e.answered(t, message(strings.Repeat("m", i+1)))
			if len(turn.Response.Parts) != 9 || turn.Attempt != 2 {
				t.Fatalf("round %d: attempt %d, %q", i, turn.Attempt, plain(turn.Response))
			}
		}
		e.idle(t)
		if len(front.turns()) != 20 {
			t.Errorf("%d runs", len(front.turns()))
		}
	})
}

// TestAnswersThatAreNone: whatever becomes of the other agent's turn, the asking one goes on.
func TestAnswersThatAreNone(t *testing.T) {
	demand := normalized.Response{Parts: []normalized.Part{normalized.Text("Wait."), {Kind: normalized.PartPolicy, Policy: &policypart.Part{
		Kind: policypart.ConsentRequired, Message: "May I?",
	}}}}
	for name, test := range map[string]struct {
		answer func(agents.Turn) normalized.Response
		status string
		code   string
		text   string
	}{
		"demand":  {func(agents.Turn) normalized.Response { return demand }, normalized.StatusInputRequired, "", "Wait."},
		"silence": {func(agents.Turn) normalized.Response { return normalized.Response{Silent: true} }, normalized.StatusCompleted, "", ""},
		"panic":   {func(agents.Turn) normalized.Response { panic("ouch") }, normalized.StatusFailed, "internal", "Sorry"},
		"refusal": {func(agents.Turn) normalized.Response {
			return normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.Forbidden, Message: "Never."}}}}
		}, normalized.StatusFailed, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front := &script{name: "echo", answer: func(turn agents.Turn) normalized.Response {
				if turn.Message.ReceivedTrace == nil {
					return asks("Please?", b)
				}
				return texts("done")
			}}
			e := composed(t, "sqlite", nil, front, &script{name: "b", answer: test.answer})
			e.answered(t, message("m1"))
			trace := front.turns()[1].Message.ReceivedTrace
			code := ""
			if trace.Error != nil {
				code = trace.Error.Code
			}
			if trace.Outcome() != test.status || code != test.code || !strings.HasPrefix(normalized.PlainText(trace.Parts), test.text) {
				t.Errorf("trace %+v", trace)
			}
			if name == "demand" && (trace.Policy() == nil || trace.Policy().Message != "May I?") {
				t.Errorf("the demand is not in the trace: %+v", trace.Parts)
			}
		})
	}
}

// TestRefusalAtTheOtherDoorIsAnAnswer: an agent that may not ask on tells so, and the one that asked goes on.
func TestRefusalAtTheOtherDoorIsAnAnswer(t *testing.T) {
	front := &script{name: "echo", answer: relays("Please?", b)}
	e := composed(t, "sqlite", nil, front, &script{name: "b", settings: agents.Settings{MaxHops: 1}, answer: relays("You?", c)},
		&script{name: "c", answer: says("never asked")})
	turn := e.answered(t, message("m1"))
	if text := normalized.PlainText(turn.Response.Parts); !strings.Contains(text, "passed on as often as it may") {
		t.Errorf("got %q", text)
	}
}

// TestHopCeilingStops: A asks B, B asks A, and there the chain of two ends.
func TestHopCeilingStops(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		ceiling := agents.Settings{MaxHops: 2}
		front := &script{name: "echo", settings: ceiling, answer: relays("You first.", b)}
		other := &script{name: "b", settings: ceiling, answer: relays("No, you.", "@echo@inbox.test")}
		e := composed(t, url, nil, front, other)
		turn := e.answered(t, message("m1"))
		if len(front.turns()) != 3 || len(other.turns()) != 2 {
			t.Fatalf("%d and %d runs", len(front.turns()), len(other.turns()))
		}
		last := front.turns()[1].Message.RecipientCapabilities.AgentChain
		if last == nil || !last.IsFinal || last.Hop != 2 {
			t.Errorf("the last agent is told %+v", last)
		}
		if text := strings.Join(plain(turn.Response), "|"); !strings.Contains(text, "passed on as often as it may") {
			t.Errorf("got %q", text)
		}
		records := e.audits(t, "chain:stripped")
		if len(records) != 1 || records[0].Agent != "echo" || !strings.Contains(records[0].Detail, b) {
			t.Errorf("audit %+v", records)
		}
	})
}

func TestAgentThatAsksForEverIsStopped(t *testing.T) {
	for name, test := range map[string]struct {
		to          []string
		runs, calls int
	}{"rounds": {[]string{b}, 5, 4}, "calls": {[]string{b, b, b}, 3, 6}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front := &script{name: "echo", answer: func(agents.Turn) normalized.Response { return asks("And?", test.to...) }}
			other := &script{name: "b", answer: says("Nothing.")}
			e := composed(t, "sqlite", nil, front, other)
			turn := e.answered(t, message("m1"))
			if turn.State != exchange.StateFailed || turn.Response.Error.Code != "dispatch:limit" {
				t.Errorf("%s %+v", turn.State, turn.Response)
			}
			if len(front.turns()) != test.runs || len(other.turns()) != test.calls {
				t.Errorf("%d runs, %d calls", len(front.turns()), len(other.turns()))
			}
		})
	}
}

// TestRemoteCall: a call that fails for a moment is made again under the same id; one that cannot succeed is an answer.
func TestRemoteCall(t *testing.T) {
	for name, test := range map[string]struct {
		fail error
		text string
		code string
	}{
		"soon":    {fault.RetryIn(time.Millisecond, "busy", errors.New("503")), "fine", ""},
		"never":   {fault.GiveUp("no card", nil), "@b@far.test could not be reached.", "dispatch:unreachable"},
		"refused": {fault.New(fault.Forbidden, "not you"), "@b@far.test does not take this question: not you", "dispatch:refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var ids []string
			front := &script{name: "echo", answer: relays("How are you?", "@b@far.test")}
			e := composed(t, "sqlite", func(o *pipeline.Options) {
				o.Caller = callFunc(func(_ context.Context, d exchange.Dispatch) (normalized.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					ids = append(ids, d.ID)
					if len(ids) == 1 {
						return normalized.Response{}, test.fail
					}
					r := texts("fine")
					r.To, r.Metadata, r.InReplyTo = []string{"@evil@far.test"}, map[string]string{"a": "b"}, "else"
					return r, nil
				})
			}, front)
			turn := e.answered(t, message("m1"))
			if got := plain(turn.Response); !cmp.Equal(got, []string{"They said:", test.text}) {
				t.Errorf("got %q", got)
			}
			trace := front.turns()[1].Message.ReceivedTrace
			if trace.InReplyTo != ids[0] || trace.To != nil || trace.Metadata != nil || ids[len(ids)-1] != ids[0] {
				t.Errorf("trace %+v of calls %v", trace, ids)
			}
			if test.code != "" && trace.Error.Code != test.code {
				t.Errorf("code %s", trace.Error.Code)
			}
		})
	}
}

// TestHugeAnswerIsCut: what does not fit into a trace is left out with a word about it.
func TestHugeAnswerIsCut(t *testing.T) {
	huge := texts("short", strings.Repeat("long ", 60<<10), "end")
	front := &script{name: "echo", answer: func(turn agents.Turn) normalized.Response {
		if turn.Message.ReceivedTrace == nil {
			return asks("All of it.", b, c)
		}
		return texts("done")
	}}
	e := composed(t, "sqlite", nil, front, &script{name: "b", answer: func(agents.Turn) normalized.Response { return huge }},
		&script{name: "c", answer: func(agents.Turn) normalized.Response { return huge }})
	e.answered(t, message("m1"))
	m := front.turns()[1].Message
	if err := normalized.Validate(m, normalized.DefaultLimits()); err != nil {
		t.Error(err)
	}
	words := plain(m.ReceivedTrace)
	if len(words) != 12 || words[1] != "short" || words[3] != "end" || !strings.Contains(words[4], "more bytes are not shown") || !strings.HasPrefix(words[2], "long ") {
		t.Errorf("%d parts: %.20q", len(words), words)
	}
}

// TestCancelledTurnStaysCancelled: answers that come too late wake no one.
func TestCancelledTurnStaysCancelled(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		called, release := make(chan struct{}), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(release) })
		defer letGo()
		front := &script{name: "echo", answer: relays("Take your time.", "@b@far.test")}
		e := composed(t, url, func(o *pipeline.Options) {
			o.Caller = callFunc(func(ctx context.Context, _ exchange.Dispatch) (normalized.Response, error) {
				close(called)
				<-release
				return texts("late"), nil
			})
		}, front)
		receipt := e.receive(t, message("m1"))
		await.Receive(t, called, "the call of the other agent")
		if _, err := e.pipeline.Cancel(t.Context(), receipt.TurnID, "changed my mind"); err != nil {
			t.Fatal(err)
		}
		letGo()
		e.idle(t)
		turn := e.settled(t, receipt.TurnID)
		if turn.State != exchange.StateCancelled || e.peer.count() > 1 {
			t.Errorf("turn %s, %d deliveries", turn.State, e.peer.count())
		}
	})
}

// crashing loses power inside a transaction, as often as told: what was done in it is gone.
type crashing struct {
	pipeline.Store
	before atomic.Int32 // resumptions to lose
}

var errPower = fault.New(fault.Unavailable, "the power is gone")

func (s *crashing) InTx(ctx context.Context, work func(pipeline.Tx) error) error {
	return s.Store.InTx(ctx, func(tx pipeline.Tx) error { return work(crashingTx{tx, s}) })
}

type crashingTx struct {
	pipeline.Tx
	store *crashing
}

func (tx crashingTx) ResumeTurn(
	ctx context.Context, turnID string, resolution *policypart.Resolution, trace *normalized.Response, at time.Time,
) (bool, error) {
	if tx.store.before.Add(-1) >= 0 {
		return false, errPower
	}
	return tx.Tx.ResumeTurn(ctx, turnID, resolution, trace, at)
}

// TestCrashBetweenAnswerAndResumption: the call is made again with the same id, the other agent runs once, the turn goes on.
func TestCrashBetweenAnswerAndResumption(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: relays("Will it rain?", b)}
		other := &script{name: "b", answer: says("It will.")}
		e := composed(t, url, func(o *pipeline.Options) {
			broken := &crashing{Store: o.Store}
			broken.before.Store(3)
			o.Store = broken
		}, front, other)
		turn := e.answered(t, message("m1"))
		if got := plain(turn.Response); !cmp.Equal(got, []string{"They said:", "It will."}) {
			t.Errorf("got %q", got)
		}
		if len(front.turns()) != 2 || len(other.turns()) != 1 {
			t.Errorf("%d and %d runs", len(front.turns()), len(other.turns()))
		}
	})
}

// TestNestedCallsDoNotLock: with a single worker for calls, the outer one makes room for the inner one.
func TestNestedCallsDoNotLock(t *testing.T) {
	t.Parallel()
	front := &script{name: "echo", answer: relays("b?", b)}
	middle := &script{name: "b", answer: relays("c?", c)}
	e := composedBy(t, 1, "sqlite", nil, front, middle, &script{name: "c", answer: says("Here.")})
	turn := e.answered(t, message("m1"))
	if got := plain(turn.Response); !cmp.Equal(got, []string{"They said:", "They said:", "Here."}) {
		t.Errorf("got %q", got)
	}
	chain := middle.turns()[1].Message.RecipientCapabilities.AgentChain
	if chain.Hop != 1 || len(middle.turns()[0].Message.Sender.Identities[0].OnBehalfOf) != 1 {
		t.Errorf("chain %+v", chain)
	}
}
