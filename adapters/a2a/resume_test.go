package a2a

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

var errResolved = fault.New(fault.Conflict, "the message that this one continues does not wait any more")

// demanding asks for something once and then answers.
func demanding(part policypart.Part) func(context.Context, *run) normalized.Response {
	return func(ctx context.Context, r *run) normalized.Response {
		if r.turn.Message.InReplyTo == "" && !r.demand(ctx, part) {
			return normalized.Response{}
		}
		return normalized.Response{InReplyTo: r.turn.Message.ID, Parts: []normalized.Part{normalized.Text("done")}}
	}
}

func consent() policypart.Part {
	return policypart.Part{Kind: policypart.ConsentRequired, Title: "May I?", Message: "I need your consent.", URL: "https://agents.test/policy/1"}
}

// presenting puts a secret into a demand, as the engine's demand service does.
func presenting(o *Options) {
	o.Present = func(part policypart.Part) policypart.Part {
		part.URL += "?token=T"
		part.Data = map[string]json.RawMessage{stateKey: json.RawMessage(`"T"`)}
		return part
	}
}

func TestADemandAndItsEnd(t *testing.T) {
	b := setup(t, presenting)
	b.engine.agent = demanding(consent())
	first := b.rpc(b.ada, "SendMessage", message("m1", "buy"))
	compare(t, "auth-required.json", first.body)
	task := first.text(t, "result.task.id")

	b.engine.resume(b.engine.newestTurn(), policypart.Resolution{Kind: policypart.ConsentRequired, Outcome: policypart.OutcomeGranted})
	b.ended()
	done := b.rpc(b.ada, "GetTask", `{"id":"`+task+`"}`)
	compare(t, "resumed.json", done.body)
	if listed := b.rpc(b.ada, "ListTasks", `{"status":"TASK_STATE_COMPLETED"}`); listed.text(t, "result.tasks.0.id") != task {
		t.Errorf("list: %s", listed.body)
	}
}

func TestAResumedTurnWorks(t *testing.T) {
	turn := exchange.TurnRecord{State: exchange.StateAccepted}
	if got := stateOf(turn); got != "TASK_STATE_SUBMITTED" {
		t.Errorf("new: %s", got)
	}
	turn.ReplyID = "r"
	if got := stateOf(turn); got != "TASK_STATE_WORKING" {
		t.Errorf("resumed: %s", got)
	}
	turn.State, turn.Reason, turn.Response = exchange.StateWaiting, exchange.WaitingDispatch, &normalized.Response{
		Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.ConsentRequired}}},
	}
	if got := stateOf(turn); got != "TASK_STATE_WORKING" {
		t.Errorf("asking others after its demand was met: %s", got)
	}
}

// states reads the states of a stream as they come.
func (b *bundle) states(body string) (<-chan string, func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/a2a/echo", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.ada)
	req.Header.Set("Content-Type", "application/json")
	res, err := b.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	list := make(chan string, 32)
	var group sync.WaitGroup
	group.Go(func() {
		defer close(list)
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			r := reply{body: data}
			for _, path := range []string{"result.task.status.state", "result.statusUpdate.status.state"} {
				if state := r.text(b.T, path); state != "" {
					list <- strings.TrimPrefix(state, "TASK_STATE_")
				}
			}
		}
	})
	return list, func() {
		cancel()
		_ = res.Body.Close()
		group.Wait()
	}
}

// until reads states up to the wanted one.
func until(t *testing.T, states <-chan string, want string) {
	t.Helper()
	var seen []string
	for {
		select {
		case state, open := <-states:
			if !open {
				t.Fatalf("the stream ended after %v, want %s", seen, want)
			}
			if seen = append(seen, state); state == want {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("after %v nothing came, want %s", seen, want)
		}
	}
}

func TestStreamsSeeTheResumedTurn(t *testing.T) {
	for name, part := range map[string]policypart.Part{"consent": consent(), "payment": {Kind: policypart.PaymentRequired, Message: "pay"}} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.engine.agent = demanding(part)
			wait := map[string]string{"consent": "AUTH_REQUIRED", "payment": "INPUT_REQUIRED"}[name]
			sent, stopSent := b.states(call10("SendStreamingMessage", message("m1", "buy")))
			defer stopSent()
			until(t, sent, wait)
			turn, _, _ := b.engine.look(b.engine.newestTurn())
			subscribed, stop := b.states(call10("SubscribeToTask", `{"id":"`+turn.Reference+`"}`))
			defer stop()
			until(t, subscribed, wait)
			b.engine.resume(turn.ID, policypart.Resolution{Kind: part.Kind, Outcome: policypart.OutcomeGranted})
			until(t, subscribed, "WORKING")
			until(t, subscribed, "COMPLETED")
			if name == "consent" { // a stream of a message ends when input is needed
				until(t, sent, "COMPLETED")
			}
		})
	}
}

func TestAMessageTakesUpAParkedTurn(t *testing.T) {
	b := setup(t)
	b.engine.agent = demanding(consent())
	first := b.rpc(b.ada, "SendMessage", message("m1", "buy"))
	task, parked := first.text(t, "result.task.id"), b.engine.newestTurn()
	subscribed, stop := b.states(call10("SubscribeToTask", `{"id":"`+task+`"}`))
	defer stop()
	until(t, subscribed, "AUTH_REQUIRED")

	second := b.rpc(b.ada, "SendMessage", follow("m2", task, ""))
	if in := b.engine.last(); in.Continues != parked || in.Reference != task {
		t.Errorf("continues %q, want %q", in.Continues, parked)
	}
	until(t, subscribed, "COMPLETED")
	if more := await.Receive(t, subscribed, "the end of the stream"); more != "" {
		t.Errorf("the stream goes on after the end with %s", more)
	}
	compare(t, "taken-up.json", b.rpc(b.ada, "GetTask", `{"id":"`+second.text(t, "result.task.id")+`"}`).body)
}

func TestAResumedTurnTakesNoMessage(t *testing.T) {
	b := setup(t)
	release := make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		if r.demand(ctx, consent()) {
			hold(ctx, release)
		}
		return echo(ctx, r)
	}
	defer close(release)
	task := b.rpc(b.ada, "SendMessage", message("m1", "buy")).text(t, "result.task.id")
	turn := b.engine.newestTurn()
	b.engine.resume(turn, policypart.Resolution{Kind: policypart.ConsentRequired, Outcome: policypart.OutcomeGranted})
	busy := b.rpc(b.ada, "SendMessage", follow("m2", task, ""))
	if got := busy.decode(t); got.Error == nil || got.Error.Code != -32004 {
		t.Errorf("busy: %s", busy.body)
	}

	// The demand is met between our look and the engine's.
	b.engine.refusal = errResolved
	b.engine.mu.Lock()
	b.engine.turns[turn].State = exchange.StateWaiting
	b.engine.mu.Unlock()
	raced := b.rpc(b.ada, "SendMessage", follow("m3", task, ""))
	if got := raced.decode(t); got.Error == nil || got.Error.Code != -32004 {
		t.Errorf("raced: %s", raced.body)
	}
	if _, claimed, _ := b.engine.Get(t.Context(), claimSpace, turn); claimed {
		t.Error("the claim of a message that was not taken stays")
	}
}

// TestACopyThatFailsFreesNothing: of two copies of a message one is stored while the other one fails. The step behind the turn belongs to
// the message that was stored.
func TestACopyThatFailsFreesNothing(t *testing.T) {
	b := setup(t)
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		if r.turn.Message.ID == "m2" {
			return echo(ctx, r)
		}
		return normalized.Response{InReplyTo: r.turn.Message.ID, Status: normalized.StatusInputRequired, Parts: []normalized.Part{normalized.Text("which one?")}}
	}
	task := b.rpc(b.ada, "SendMessage", message("m1", "buy")).text(t, "result.task.id")
	turn := b.engine.newestTurn()
	b.engine.nextReceive = func() error {
		b.rpc(b.ada, "SendMessage", follow("m2", task, ""))
		return fault.RetryIn(0, "the database is away", nil)
	}
	b.rpc(b.ada, "SendMessage", follow("m2", task, ""))
	if claim, _, _ := b.engine.Get(t.Context(), claimSpace, turn); string(claim) != claimMessage+"m2" {
		t.Errorf("the step belongs to %q", claim)
	}
}

// TestAStreamOverADispatch: the reader sees one WORKING, and the text of the run that asked is replaced.
func TestAStreamOverADispatch(t *testing.T) {
	b := setup(t)
	b.engine.agent = func(_ context.Context, r *run) normalized.Response {
		r.say("I ask ")
		r.park(exchange.StateWaiting, exchange.WaitingDispatch, nil)
		r.engine.resume(r.turn.ID, policypart.Resolution{})
		r.park(exchange.StateRunning, "", nil)
		r.say("they ")
		return normalized.Response{InReplyTo: r.turn.Message.ID, Parts: []normalized.Part{normalized.Text("they said so")}}
	}
	body := b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello"))
	var text strings.Builder
	var states []string
	for _, frame := range body.frames() {
		if state := frame.text(t, "result.statusUpdate.status.state"); state != "" {
			states = append(states, state)
		}
		if frame.at(t, "result.artifactUpdate") == nil {
			continue
		}
		if appended, _ := frame.at(t, "result.artifactUpdate.append").(bool); !appended {
			text.Reset()
		}
		text.WriteString(frame.text(t, "result.artifactUpdate.artifact.parts.0.text"))
	}
	if text.String() != "they said so" || strings.Join(states, " ") != "TASK_STATE_WORKING TASK_STATE_COMPLETED" {
		t.Errorf("%q, %v: %s", text.String(), states, body.body)
	}
}

func TestWorkThatWaitsForOthersIsNoEnd(t *testing.T) {
	b := setup(t)
	looked := make(chan struct{}, 8)
	b.engine.onWait = func() { looked <- struct{}{} }
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		r.park(exchange.StateWaiting, exchange.WaitingDispatch, nil)
		hold(ctx, looked)
		hold(ctx, looked) // the blocking send came back to look once more
		return echo(ctx, r)
	}
	r := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
	if got := r.text(t, "result.task.status.state"); got != "TASK_STATE_COMPLETED" {
		t.Errorf("state %s", got)
	}
}

func TestPaymentKeys(t *testing.T) {
	paid := &policypart.Resolution{
		Kind: policypart.PaymentRequired, Outcome: policypart.OutcomePaid, Receipt: "0xabc",
		Data: map[string]json.RawMessage{paymentDataKey: json.RawMessage(`{"payer":"0x1","network":"base"}`)},
	}
	answer := &normalized.Response{Parts: []normalized.Part{normalized.Text("done")}}
	broke := &normalized.Response{Status: normalized.StatusFailed, Error: &normalized.ResponseError{Code: "payment:capture", Message: "no money"}}
	captured := &normalized.Response{Parts: answer.Parts, Metadata: map[string]string{
		paymentStatusKey: "payment-completed", paymentReceiptsKey: `[{"success":true,"transaction":"0xreal"}]`,
	}}
	for name, c := range map[string]struct {
		state      string
		resolution *policypart.Resolution
		response   *normalized.Response
		status     string
		receipt    string
	}{
		"not paid for": {exchange.StateAnswered, nil, answer, "", ""},
		"consent":      {exchange.StateAnswered, &policypart.Resolution{Kind: policypart.ConsentRequired, Outcome: policypart.OutcomeGranted}, answer, "", ""},
		"running":      {exchange.StateRunning, paid, nil, paymentVerified, ""},
		"answered":     {exchange.StateAnswered, paid, answer, paymentCompleted, "0xabc"},
		"captured":     {exchange.StateAnswered, paid, captured, paymentCompleted, "0xreal"},
		"failed":       {exchange.StateFailed, paid, broke, paymentFailed, ""},
		"denied":       {exchange.StateRefused, &policypart.Resolution{Kind: policypart.PaymentRequired, Outcome: policypart.OutcomeDenied}, answer, paymentRejected, ""},
		"expired":      {exchange.StateRefused, &policypart.Resolution{Kind: policypart.PaymentRequired, Outcome: policypart.OutcomeExpired}, answer, paymentFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.engine.agent = func(context.Context, *run) normalized.Response { return normalized.Response{Silent: true} }
			task := b.rpc(b.ada, "SendMessage", message("m1", "hello")).text(t, "result.task.id")
			turn := b.engine.turns[b.engine.newestTurn()]
			turn.State, turn.Response, turn.Message.PolicyResolution = c.state, c.response, c.resolution
			r := b.rpc(b.ada, "GetTask", `{"id":"`+task+`"}`)
			metadata := func(path string) map[string]any {
				object, _ := r.at(t, path).(map[string]any)
				return object
			}
			for _, path := range []string{"result.status.message.metadata", "result.metadata"} {
				got := metadata(path)
				if status, _ := got[paymentStatusKey].(string); status != c.status {
					t.Errorf("%s: %q, want %q: %s", path, status, c.status, r.body)
				}
				receipts, _ := json.Marshal(got[paymentReceiptsKey])
				if (c.receipt != "") != (string(receipts) != "null") || !strings.Contains(string(receipts), c.receipt) {
					t.Errorf("%s: receipts %s, want %q", path, receipts, c.receipt)
				}
			}
		})
	}
}
