package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/tool/request/requesttest"
	"inbox/agents/runtime/value"
	"inbox/engine/pipeline"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// asksOutside waits for a tool and answers with what it gave. The call is named by the message.
func asksOutside(timeout time.Duration) agents.Func {
	return func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		wanted := map[string]any{
			"tool_name": "client/pick", "tool_call_id": "c1", "run_id": turn.ID, "parameters": map[string]any{"of": turn.Message.ID},
			"timeout_at": time.Now().Add(timeout).UTC().Format(time.RFC3339Nano),
		}
		stored, err := turn.Requests.Request(ctx, requestOf(turn.ID))
		if err != nil {
			return normalized.Failing(err)
		}
		if result, ended, err := request.Outcome(stored); stored != nil && ended {
			return normalized.Whole(texts(fmt.Sprint(result["success"], " ", result["result"], result["error"], err)))
		}
		if err := turn.Requests.Await(wanted); err != nil {
			return normalized.Failing(err)
		}
		return normalized.Whole(texts("nobody is to read this"))
	}
}

func requestOf(turnID string) string { return request.ID(turnID, "client/pick", "c1") }

// asked sends a message and waits until its turn waits for the tool.
func (e *engine) asked(t *testing.T, n string) (turnID string) {
	t.Helper()
	turnID = e.receive(t, message(n)).TurnID
	e.waitsForTool(t, turnID)
	return turnID
}

func (e *engine) waitsForTool(t *testing.T, turnID string) {
	t.Helper()
	await.Until(t, "the turn waits for the tool", func() bool {
		turn, err := e.store.Turn(t.Context(), turnID)
		return err == nil && exchange.GoesOnByItself(turn) && turn.Reason == "tool (client/pick)"
	})
}

func (e *engine) steps(t *testing.T, turnID string) (kinds string) {
	t.Helper()
	events, err := e.store.Events(t.Context(), turnID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		if event.Kind != exchange.EventDelta {
			kinds += " " + event.Kind
		}
	}
	return strings.TrimSpace(kinds)
}

// said returns the text of the next reply.
func (e *engine) said(t *testing.T) string {
	t.Helper()
	reply := e.peer.next(t)
	return plain(&reply.Reply.Response)[0]
}

var byProgram = "token:desk"

func TestTurnWaitsForAProgramOutside(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, asksOutside(time.Hour), agents.Settings{})
		turnID := e.asked(t, "m1")
		pending, err := e.pipeline.ToolRequests("echo", byProgram).Store.RecentPending(t.Context(), request.Query{})
		if err != nil || len(pending) != 1 || pending[0]["request_id"] != requestOf(turnID) || pending[0]["agent"] != "echo" || pending[0]["run_id"] != turnID {
			t.Fatalf("pending: %v, %v", pending, err)
		}
		if _, err := e.pipeline.ToolRequests("other", byProgram).Submit(t.Context(), map[string]any{"request_id": requestOf(turnID)}, nil, nil); err == nil || !strings.Contains(err.Error(), "request not found") {
			t.Errorf("another agent's program submits: %v", err)
		}

		// Of many programs that hand in a result at once one wins; all others get its result.
		var mu sync.Mutex
		var winners []string
		var group sync.WaitGroup
		for number := range 8 {
			group.Go(func() {
				answer, err := e.pipeline.ToolRequests("echo", byProgram).Submit(context.WithoutCancel(t.Context()),
					map[string]any{"request_id": requestOf(turnID), "result": map[string]any{"number": number}}, nil, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if !answer.Duplicate {
					winners = append(winners, fmt.Sprint(number))
				}
			})
		}
		await.Done(t, group.Wait, "the answers to all programs")
		if len(winners) != 1 {
			t.Fatalf("winners: %v", winners)
		}
		reply := e.peer.next(t)
		if text := plain(&reply.Reply.Response)[0]; text != "true map[number:"+winners[0]+"] <nil> <nil>" {
			t.Errorf("the reply is %q", text)
		}
		e.settled(t, turnID)
		const want = "turn.accepted turn.running turn.waiting tool.requested turn.accepted tool.submitted tool.resumed turn.running turn.restarted turn.answered"
		if kinds := e.steps(t, turnID); !strings.HasPrefix(kinds, want) {
			t.Errorf("timeline: %s", kinds)
		}
		if e.peer.count() != 1 {
			t.Errorf("%d replies", e.peer.count())
		}
	})
}

func TestToolRequestsEndByTheClock(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, asksOutside(50*time.Millisecond), agents.Settings{})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 { // as many nodes
			running.Go(func() {
				if err := e.pipeline.ExpireTools(ctx); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		defer func() {
			stop()
			await.Done(t, running.Wait, "the end of the clocks")
		}()
		turnID := e.receive(t, message("m1")).TurnID
		if text := e.said(t); !strings.Contains(text, "Runtime tool request timed out.") {
			t.Errorf("the reply is %q", text)
		}
		e.settled(t, turnID)
		if kinds := e.steps(t, turnID); strings.Count(kinds, exchange.EventToolTimedOut) != 1 {
			t.Errorf("timeline: %s", kinds)
		}
		_, err := e.pipeline.ToolRequests("echo", byProgram).Submit(t.Context(), map[string]any{"request_id": requestOf(turnID)}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "request is not pending") {
			t.Errorf("submitted too late: %v", err)
		}
	})
}

func TestCancelledTurnEndsItsToolRequests(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, asksOutside(time.Hour), agents.Settings{})
		turnID := e.asked(t, "m1")
		if _, err := e.pipeline.Cancel(t.Context(), turnID, "not any more"); err != nil {
			t.Fatal(err)
		}
		stored, err := e.store.ToolRequest(t.Context(), requestOf(turnID))
		if err != nil || stored.Status != request.StatusTimeout {
			t.Errorf("the request is %s, %v", stored.Status, err)
		}
		if _, err := e.pipeline.ToolRequests("", byProgram).Submit(t.Context(), map[string]any{"request_id": requestOf(turnID)}, nil, nil); err == nil {
			t.Error("a result was taken for a message that nobody waits for")
		}
		if turn, err := e.store.Turn(t.Context(), turnID); err != nil || turn.State != exchange.StateCancelled {
			t.Errorf("the turn is %s, %v", turn.State, err)
		}
		if kinds := e.steps(t, turnID); !strings.HasSuffix(kinds, "turn.cancelled tool.cancelled") {
			t.Errorf("timeline: %s", kinds)
		}
	})
}

func TestTakenBackToolRequestLetsTheTurnGoOn(t *testing.T) {
	e := start(t, "sqlite", asksOutside(time.Hour), agents.Settings{})
	turnID := e.asked(t, "m1")
	answer, err := e.pipeline.ToolCancels("echo", byProgram).Cancel(t.Context(), requestOf(turnID), nil, nil)
	if err != nil || !answer.Cancelled || answer.Duplicate {
		t.Fatalf("%+v, %v", answer, err)
	}
	if text := e.said(t); !strings.HasPrefix(text, "false ") {
		t.Errorf("the reply is %q", text)
	}
	e.settled(t, turnID)
	if kinds := e.steps(t, turnID); strings.Count(kinds, exchange.EventToolCancelled) != 1 {
		t.Errorf("timeline: %s", kinds)
	}
}

// A turn that begins to wait for what is there already goes on at once.
func TestResultThatWasThereBeforeTheTurnWaited(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		asks := asksOutside(time.Hour)
		forgets := true
		e := start(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if !forgets {
				return asks(ctx, turn)
			}
			forgets = false
			if err := turn.Requests.Await(map[string]any{"tool_name": "client/pick", "tool_call_id": "c1", "run_id": turn.ID}); err != nil {
				return normalized.Failing(err)
			}
			return normalized.Whole(texts("nobody is to read this"))
		}, agents.Settings{Unverified: agents.UnverifiedHold})
		in := message("m1")
		in.NoReply = "kept back until the result is there"
		turnID := e.receive(t, in).TurnID
		if err := e.store.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error {
			if _, err := tx.InsertToolRequest(t.Context(), exchange.ToolRequest{
				ID: requestOf(turnID), Agent: "echo", TurnID: turnID, ToolName: "client/pick", Status: request.StatusPending,
				Request: []byte(`{"tool_name":"client/pick","tool_call_id":"c1"}`),
			}); err != nil {
				return err
			}
			_, err := tx.EndToolRequest(t.Context(), requestOf(turnID), request.StatusCompleted, []byte(`{"success":true,"result":[1]}`), time.Now())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := e.revive(t, turnID, 1); err != nil {
			t.Fatal(err)
		}
		if text := e.said(t); text != "true [1] <nil> <nil>" {
			t.Errorf("the reply is %q", text)
		}
	})
}

func TestAwaitRefusesWhatCannotBeKept(t *testing.T) {
	refusals := make(chan error, 3)
	e := start(t, "sqlite", func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		for _, wanted := range []map[string]any{
			{"tool_name": " ", "tool_call_id": "c1", "run_id": turn.ID},
			{"tool_name": "client/pick", "tool_call_id": "c1", "run_id": "another turn"},
			{"tool_name": "client/pick", "tool_call_id": "c1", "run_id": turn.ID, "parameters": map[string]any{"x": strings.Repeat("x", 1<<20)}},
		} {
			refusals <- turn.Requests.Await(wanted)
		}
		return normalized.Whole(texts("it was refused"))
	}, agents.Settings{})
	e.receive(t, message("m1"))
	if text := e.said(t); text != "it was refused" {
		t.Errorf("the reply is %q", text)
	}
	for range 3 {
		if err := await.Receive(t, refusals, "the refusals"); !fault.Is(err, fault.Malformed) {
			t.Errorf("refused with %v", err)
		}
	}
}

func TestTurnThatWaitsForAToolIsAcknowledged(t *testing.T) {
	e := start(t, "sqlite", asksOutside(time.Hour), soon)
	turnID := e.asked(t, "m1")
	for range 2 {
		if err := e.pipeline.RunAck(t.Context(), queue.Job{Payload: turnID}); err != nil {
			t.Fatal(err)
		}
	}
	if ack := e.peer.next(t); ack.Reply.Notice != exchange.NoticeAck {
		t.Fatalf("%+v", ack.Reply)
	}
	if _, err := e.pipeline.ToolRequests("echo", byProgram).Submit(t.Context(), map[string]any{"request_id": requestOf(turnID), "result": "x"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if answer := e.peer.next(t); answer.Reply.Notice == exchange.NoticeAck {
		t.Error("it was acknowledged twice")
	}
	e.settled(t, turnID)
	if err := e.pipeline.RunAck(t.Context(), queue.Job{Payload: turnID}); err != nil || e.peer.count() != 2 {
		t.Errorf("after the answer: %v, %d deliveries", err, e.peer.count())
	}
}

// rows are the requests of turns as a request.Store, for the suite.
type rows struct {
	request.Store
	store pipeline.Store
}

func (r rows) Create(ctx context.Context, normalized map[string]any) error {
	due, _ := request.TimeoutAt(normalized)
	return r.store.InTx(ctx, func(tx pipeline.Tx) error {
		_, err := tx.InsertToolRequest(ctx, exchange.ToolRequest{
			ID: value.Text(normalized["request_id"]), Agent: "echo", TurnID: value.Text(normalized["run_id"]), TimeoutAt: due,
			ToolName: value.Text(normalized["tool_name"]), Status: request.StatusPending, Request: []byte(value.EncodeText(normalized)),
		})
		return err
	})
}

func TestRequestsOfTurnsConform(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite": func(*testing.T) string { return "sqlite" }, "postgres": func(t *testing.T) string { return storetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			requesttest.Store(t, func(t *testing.T) (request.Store, func(map[string]any) map[string]any) {
				e := start(t, url(t), asksOutside(time.Hour), agents.Settings{})
				return rows{e.pipeline.ToolRequests("echo", byProgram).Store, e.store.Pipeline()}, nil
			})
		})
	}
}
