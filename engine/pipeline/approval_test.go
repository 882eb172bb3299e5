package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// doors reaches approvers by the one channel of the tests; addresses of nowhere.test cannot be reached.
type doors struct {
	mu     sync.Mutex
	opened []string
	down   int // so many attempts fail first
}

func (d *doors) Open(_ context.Context, agent, address string) (exchange.Opening, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down > 0 {
		d.down--
		return exchange.Opening{}, fault.RetryIn(0, "down", errors.New("down"))
	}
	if strings.HasSuffix(address, "@nowhere.test") {
		return exchange.Opening{}, fault.GiveUp("nobody lives there", nil)
	}
	d.opened = append(d.opened, agent+" to "+address)
	route, err := json.Marshal(map[string]string{"opened": address})
	return exchange.Opening{Channel: normalized.ViaEmail, ReceivedVia: normalized.ViaEmail, Route: route}, err
}

func (d *doors) Proves(_ context.Context, sender normalized.Sender, address string) (*identity.Evidence, error) {
	for i := range sender.Identities {
		if sender.Identities[i].Vouches(address) {
			return &sender.Identities[i], nil
		}
	}
	return nil, nil
}

const owner = "owner@peer.test"

// refunds asks for an approval first and tells what was decided.
func refunds(turn agents.Turn) normalized.Response {
	if resolution := turn.Message.PolicyResolution; resolution != nil {
		return texts("Refunded: " + resolution.Outcome)
	}
	return normalized.Response{Parts: []normalized.Part{normalized.Text("I need an approval."), {Kind: normalized.PartPolicy, Policy: &policypart.Part{
		Kind: policypart.ConsentRequired, Code: policypart.CodeApproval, Message: "May I refund order 17?",
		Data: map[string]json.RawMessage{policypart.ApprovalKey: json.RawMessage(`{"action_id":"a1","tool":"refund","summary":"Refund order 17"}`)},
	}}}}
}

func approving(t *testing.T, url string, agent *script, others ...*script) (*engine, *doors) {
	t.Helper()
	opens := &doors{}
	agent.name = "echo"
	agent.settings.Approvers = append(agent.settings.Approvers, owner)
	return composed(t, url, func(o *pipeline.Options) { o.Approvers = opens }, append(others, agent)...), opens
}

// waits receives the message and waits until its turn is parked.
func (e *engine) waits(t *testing.T, in exchange.Inbound, reason string) exchange.TurnRecord {
	t.Helper()
	turn := e.settled(t, e.receive(t, in).TurnID)
	if turn.State != exchange.StateWaiting || turn.Reason != reason {
		t.Fatalf("the turn is %s (%s); want waiting (%s)", turn.State, turn.Reason, reason)
	}
	return turn
}

// ends waits for the end of a turn that waited.
func (e *engine) ends(t *testing.T, turnID, state string) exchange.TurnRecord {
	t.Helper()
	var turn exchange.TurnRecord
	await.Until(t, "the turn has ended", func() bool {
		var err error
		if turn, err = e.store.Turn(t.Context(), turnID); err != nil {
			t.Fatal(err)
		}
		return exchange.Terminal(turn.State)
	})
	if turn.State != state {
		t.Fatalf("the turn is %s (%s); want %s", turn.State, turn.Reason, state)
	}
	return turn
}

// told returns what the approver got to read.
func (e *engine) told(t *testing.T) exchange.Delivery {
	t.Helper()
	d := e.peer.next(t)
	if d.Reply.Response.Policy() == nil || !strings.Contains(string(d.Reply.Route), owner) {
		t.Fatalf("the first delivery is %+v; want the question to the approver", d.Reply)
	}
	return d
}

func (e *engine) open(t *testing.T) exchange.Approval {
	t.Helper()
	found, err := e.demands.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 10})
	if err != nil || len(found) != 1 {
		t.Fatalf("%d approvals are open (%v); want 1", len(found), err)
	}
	return found[0]
}

func decision(user, id, text string) exchange.Inbound {
	in := from(user, id, "thread "+id)
	in.Message.Parts = []normalized.Part{normalized.Text(text)}
	return in
}

func TestApprovalByText(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{answer: refunds}
		e, opens := approving(t, url, agent)
		turn := e.waits(t, message("1"), "approval (refund)")
		notice := e.told(t)
		if got := notice.Reply.Response.Policy(); !strings.Contains(got.Message, "Refund order 17") || got.URL != "https://inbox.test/policy/"+e.open(t).ID {
			t.Errorf("told: %+v", got)
		}
		if err := normalized.Validate(withRaw(notice.Reply.Message), normalized.DefaultLimits()); err != nil {
			t.Errorf("the message that opens the conversation: %v", err)
		}
		if said := plain(turn.Response); len(said) != 1 || turn.Response.Policy() != nil || strings.Contains(said[0], "refund") {
			t.Errorf("the asker may see %q", said)
		}
		if records, err := e.store.Deliveries(t.Context(), delivery.Filter{TurnID: turn.ID, Limit: 10}); err != nil || len(records) != 0 {
			t.Errorf("the asker was sent %v, %v", records, err)
		}

		// Someone else's decision is an ordinary message.
		e.waits(t, decision("mallory", "m1", "approve"), "approval (refund)")
		e.told(t)
		if _, err := e.pipeline.Cancel(t.Context(), e.newest(t), "not this one"); err != nil {
			t.Fatal(err)
		}

		// So is the approver's own, where nothing says what it is about.
		e.waits(t, decision("owner", "o0", "approve"), "approval (refund)")
		e.told(t)
		if _, err := e.pipeline.Cancel(t.Context(), e.newest(t), "not this one"); err != nil {
			t.Fatal(err)
		}

		confirmed := e.answered(t, decision("owner", "o1", "approve "+e.open(t).Code))
		if words := plain(confirmed.Response); len(words) != 1 || !strings.HasPrefix(words[0], "Approved (") {
			t.Errorf("the approver reads %q", words)
		}
		if done := e.ends(t, turn.ID, exchange.StateAnswered); plain(done.Response)[0] != "Refunded: granted" {
			t.Errorf("the asker reads %q", plain(done.Response))
		}
		for _, seen := range agent.turns() {
			if strings.HasPrefix(normalized.PlainText(seen.Message.Parts), "approve ") {
				t.Error("the agent got the decision as a message")
			}
		}
		late := e.answered(t, decision("owner", "o2", "deny "+codeOf(t, e)))
		if words := plain(late.Response); !strings.Contains(words[0], "decided before: approved by "+owner) {
			t.Errorf("deciding twice: %q", words)
		}
		if rows := e.audits(t, "approval:granted"); len(rows) != 1 || rows[0].Principal != "inbox.test mailto:"+owner || rows[0].TurnID != turn.ID {
			t.Errorf("on record: %+v", rows)
		}
		if rows := e.audits(t, policypart.CodeUsed); len(rows) != 1 {
			t.Errorf("the second decision on record: %+v", rows)
		}
		if !slices.Contains(opens.opened, "echo to "+owner) {
			t.Errorf("opened %v", opens.opened)
		}
	})
}

// withRaw is what acceptance adds to a message that came from outside.
func withRaw(m normalized.Message) normalized.Message {
	m.Raw = normalized.Raw{Ref: "sha256:" + strings.Repeat("0", 64), MediaType: "text/plain"}
	return m
}

// newest returns the turn of the newest open approval.
func (e *engine) newest(t *testing.T) string {
	t.Helper()
	found, err := e.demands.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 10})
	if err != nil || len(found) == 0 {
		t.Fatalf("no approval is open: %v", err)
	}
	return found[0].TurnID
}

// codeOf returns the code of the approval that was decided last.
func codeOf(t *testing.T, e *engine) string {
	t.Helper()
	found, err := e.demands.Approvals(t.Context(), exchange.ApprovalFilter{All: true, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range found {
		if a.Status == exchange.ApprovalApproved {
			return a.Code
		}
	}
	t.Fatal("nothing was approved")
	return ""
}

func TestDeniedByTextInTheConversation(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e, _ := approving(t, url, &script{answer: refunds})
		turn := e.waits(t, message("1"), "approval (refund)")
		notice := e.told(t)
		confirmed := e.answered(t, reply("owner", "o1", notice, "No.\n\nThe server wrote:\n> approve", ""))
		if words := plain(confirmed.Response); !strings.HasPrefix(words[0], "Denied (") {
			t.Errorf("the approver reads %q", words)
		}
		done := e.ends(t, turn.ID, exchange.StateRefused)
		if words := plain(done.Response); !strings.Contains(words[0], "was not given") || done.Reason != "approval denied" {
			t.Errorf("the asker reads %q (%s)", words, done.Reason)
		}
	})
}

func TestApprovalWithoutAdapters(t *testing.T) {
	eachDatabase(t, func(t *testing.T, address string) {
		e, _ := approving(t, address, &script{answer: refunds})
		first := e.waits(t, message("1"), "approval (refund)")
		e.told(t)
		// A command has the rows and nothing else.
		command := demand.New(demand.Options{Store: e.store, BaseURL: &url.URL{Scheme: "https", Host: "inbox.test"}})
		command.Bind(pipeline.New(pipeline.Options{Store: e.store.Pipeline()}))
		denied, err := command.Deny(t.Context(), e.open(t).Code, "operator:command line", "Not today.")
		if err != nil || denied.Status != exchange.ApprovalDenied {
			t.Fatalf("%+v, %v", denied, err)
		}
		done := e.ends(t, first.ID, exchange.StateRefused)
		if words := plain(done.Response); !strings.HasSuffix(words[0], "The reason: Not today.") {
			t.Errorf("the asker reads %q", words)
		}
		if d := e.peer.next(t); d.Reply.TurnID != first.ID {
			t.Errorf("delivered: %+v", d.Reply)
		}
		second := e.waits(t, message("2"), "approval (refund)")
		if _, err := command.Approve(t.Context(), e.open(t).ID, e.open(t).Digest, "operator:command line"); err != nil {
			t.Fatal(err)
		}
		e.ends(t, second.ID, exchange.StateAnswered)
	})
}

func TestHeldReply(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: says("We open at eight.")}
		e, _ := approving(t, url, agent)
		turn := e.waits(t, message("1"), "approval (reply)")
		if notice := e.told(t); !strings.Contains(notice.Reply.Response.Policy().Message, "We open at eight.") {
			t.Errorf("told: %+v", notice.Reply.Response.Policy())
		}
		if turn.Response == nil || strings.Contains(strings.Join(plain(turn.Response), ""), "eight") {
			t.Errorf("the asker may see the draft: %+v", turn.Response)
		}
		held := e.open(t)
		held, err := e.demands.EditReply(t.Context(), held.ID, "operator:first", "We open at nine.")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.demands.Approve(t.Context(), held.ID, held.Digest, "operator:first"); err != nil {
			t.Fatal(err)
		}
		done := e.ends(t, turn.ID, exchange.StateAnswered)
		if words := plain(done.Response); len(words) != 1 || words[0] != "We open at nine." || done.Response.InReplyTo != turn.Message.ID {
			t.Errorf("sent: %q", words)
		}
		if d := e.peer.next(t); d.Reply.TurnID != turn.ID || d.Reply.Notice != 0 {
			t.Errorf("delivered: %+v", d.Reply)
		}
		if runs := agent.turns(); len(runs) != 1 {
			t.Errorf("the agent ran %d times", len(runs))
		}

		denied := e.waits(t, message("2"), "approval (reply)")
		if _, err := e.demands.Deny(t.Context(), e.open(t).ID, "operator:first", ""); err != nil {
			t.Fatal(err)
		}
		if done := e.ends(t, denied.ID, exchange.StateRefused); !done.Response.Silent {
			t.Errorf("a denied answer says %+v", done.Response)
		}
	})
}

func TestOnlyUnprovenSendersWait(t *testing.T) {
	agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveUnverified, Unverified: agents.UnverifiedAnswer}, answer: says("hello")}
	e, _ := approving(t, "sqlite", agent)
	e.answered(t, message("1"))
	stranger := message("2")
	stranger.Message.Sender.Identities, stranger.Message.Sender.Verified, stranger.Message.Sender.AuthMethod = nil, false, normalized.AuthNone
	if turn := e.settled(t, e.receive(t, stranger).TurnID); turn.State != exchange.StateWaiting {
		t.Errorf("the answer to a stranger is %s", turn.State)
	}
}

// TestMentionedAgentsWaitToo: what is held back reaches no other agent, and what they add is held back as well.
func TestMentionedAgentsWaitToo(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		helper := &script{name: "helper", answer: says("I add this.")}
		mentioning := texts("My answer.")
		mentioning.To = []string{"@helper@inbox.test"}
		agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: func(agents.Turn) normalized.Response { return mentioning }}
		e, _ := approving(t, url, agent, helper)
		turn := e.waits(t, message("1"), "approval (reply)")
		if seen := helper.turns(); len(seen) != 0 {
			t.Fatalf("the draft went to another agent: %+v", seen[0].Message.Parts)
		}
		first := e.open(t)
		first, err := e.demands.EditReply(t.Context(), first.ID, "operator:x", "My better answer.")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.demands.Approve(t.Context(), first.ID, first.Digest, "operator:x"); err != nil {
			t.Fatal(err)
		}
		var second exchange.Approval
		await.Until(t, "the combined answer waits", func() bool {
			found, err := e.demands.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 1 {
				second = found[0]
			}
			return second.ID != "" && second.ID != first.ID
		})
		if text := normalized.PlainText(second.Draft.Parts); !strings.Contains(text, "My better answer.") || !strings.Contains(text, "I add this.") {
			t.Fatalf("the combined answer is %q", text)
		}
		if _, err := e.demands.Approve(t.Context(), second.ID, second.Digest, "operator:x"); err != nil {
			t.Fatal(err)
		}
		done := e.ends(t, turn.ID, exchange.StateAnswered)
		if text := normalized.PlainText(done.Response.Parts); !strings.Contains(text, "My better answer.") || !strings.Contains(text, "I add this.") {
			t.Errorf("sent: %q", text)
		}
		if len(agent.turns()) != 1 || len(helper.turns()) != 1 {
			t.Errorf("the agents ran %d and %d times", len(agent.turns()), len(helper.turns()))
		}
	})
}

// TestHeldReplyIsCut: the approver decides about as much of an answer as is kept, and that is sent.
func TestHeldReplyIsCut(t *testing.T) {
	agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: func(agents.Turn) normalized.Response {
		half := strings.Repeat("x", 500<<10)
		return texts(half, half, half)
	}}
	e, _ := approving(t, "sqlite", agent)
	turn := e.waits(t, message("1"), "approval (reply)")
	held := e.open(t)
	if _, err := e.demands.Approve(t.Context(), held.ID, held.Digest, "operator:first"); err != nil {
		t.Fatal(err)
	}
	done := e.ends(t, turn.ID, exchange.StateAnswered)
	if words := plain(done.Response); !slices.Equal(words, plain(held.Draft)) || !strings.HasSuffix(words[len(words)-1], "more bytes are not shown.)") {
		t.Errorf("%d parts were sent, %d were held: %.50q", len(words), len(held.Draft.Parts), words)
	}
	if cuts := e.cuts(t, turn.ID); len(cuts) != 1 || cuts[0].Bytes < 400<<10 {
		t.Errorf("the timeline has the cuts %+v", cuts)
	}
}

func TestHeldReplyIsNotStreamed(t *testing.T) {
	agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: func(turn agents.Turn) normalized.Response {
		select {
		case <-time.After(150 * time.Millisecond): // longer than deltas are gathered
		case <-t.Context().Done():
		}
		return texts("secret until approved")
	}}
	e, _ := approving(t, "sqlite", agent)
	turn := e.waits(t, message("1"), "approval (reply)")
	events, err := e.store.Events(t.Context(), turn.ID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		if bytes.Contains(event.Body, []byte("secret")) {
			t.Errorf("%s shows the draft", event.Kind)
		}
	}
}

func TestUnreachableApproverIsOnRecord(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{answer: refunds, settings: agents.Settings{Approvers: []string{"gone@nowhere.test"}}}
		e, opens := approving(t, url, agent)
		opens.mu.Lock()
		opens.down = 1
		opens.mu.Unlock()
		turn := e.waits(t, message("1"), "approval (refund)")
		e.told(t) // the other one is asked all the same, also after a failure
		await.Until(t, "it is on record", func() bool { return len(e.audits(t, "approval:unreachable")) > 0 })
		if rows := e.audits(t, "approval:unreachable"); len(rows) != 1 || rows[0].TurnID != turn.ID || !strings.Contains(rows[0].Detail, "gone@nowhere.test") {
			t.Errorf("on record: %+v", rows)
		}
		events, err := e.store.Events(t.Context(), turn.ID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(events, func(ev exchange.Event) bool { return ev.Kind == exchange.EventApprovalTold }) {
			t.Errorf("the timeline does not say that an approver was asked: %+v", events)
		}
	})
}

func TestApproverWhoMayNotTalkDecides(t *testing.T) {
	closed := identity.AccessPolicy{Access: identity.AccessRules, Rules: []identity.Rule{{Effect: "allow", Address: "@ana@peer.test"}}}
	agent := &script{answer: refunds, settings: agents.Settings{Access: closed}}
	e, _ := approving(t, "sqlite", agent)
	turn := e.waits(t, message("1"), "approval (refund)")
	e.told(t)
	if _, err := e.pipeline.Receive(t.Context(), decision("owner", "o0", "what is this about?")); !fault.Is(err, fault.Forbidden) {
		t.Errorf("an approver talks to the agent: %v", err)
	}
	if _, err := e.pipeline.Receive(t.Context(), decision("mallory", "m0", "approve")); !fault.Is(err, fault.Forbidden) {
		t.Errorf("somebody else gets in with the word: %v", err)
	}
	e.answered(t, decision("owner", "o1", "approve "+e.open(t).Code))
	e.ends(t, turn.ID, exchange.StateAnswered)
	if idle := e.answered(t, decision("owner", "o2", "approve")); !strings.Contains(plain(idle.Response)[0], "Nothing waits") {
		t.Errorf("with nothing open: %q", plain(idle.Response))
	}
	if runs := agent.turns(); len(runs) != 2 {
		t.Errorf("the agent ran %d times; want 2", len(runs))
	}
}

func TestManyDecideAndOneWins(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{answer: refunds}
		e, _ := approving(t, url, agent)
		turn := e.waits(t, message("1"), "approval (refund)")
		open := e.open(t)
		id := open.ID
		var wins, losses sync.Map
		var group sync.WaitGroup
		for n := range 8 {
			group.Go(func() {
				var err error
				if n%2 == 0 {
					_, err = e.demands.Approve(t.Context(), id, open.Digest, "operator:a")
				} else {
					_, err = e.demands.Deny(t.Context(), id, "operator:b", "")
				}
				if err == nil {
					wins.Store(n, true)
				} else if fault.Is(err, fault.Conflict) {
					losses.Store(n, true)
				}
			})
		}
		await.Done(t, group.Wait, "all decisions")
		count := func(m *sync.Map) (number int) {
			m.Range(func(any, any) bool { number++; return true })
			return number
		}
		if count(&wins) != 1 || count(&losses) != 7 {
			t.Errorf("%d decisions won, %d were refused", count(&wins), count(&losses))
		}
		e.idle(t)
		done, err := e.store.Turn(t.Context(), turn.ID)
		if err != nil || !exchange.Terminal(done.State) {
			t.Errorf("%s, %v", done.State, err)
		}
	})
}

func TestTakenBackMessageDropsItsApproval(t *testing.T) {
	e, _ := approving(t, "sqlite", &script{answer: refunds})
	turn := e.waits(t, message("1"), "approval (refund)")
	held := e.open(t)
	if _, err := e.pipeline.Cancel(t.Context(), turn.ID, "taken back"); err != nil {
		t.Fatal(err)
	}
	if again, err := e.demands.Approve(t.Context(), held.ID, held.Digest, "operator:x"); !fault.Is(err, fault.Conflict) || again.Status != exchange.ApprovalDropped {
		t.Errorf("approved nevertheless: %+v, %v", again, err)
	}
}

func TestApproversAreNotFlooded(t *testing.T) {
	e, opens := approving(t, "sqlite", &script{answer: refunds})
	const flood, asked = 25, 20
	for n := range flood {
		e.receive(t, message(fmt.Sprint(n)))
	}
	for range asked {
		e.told(t)
	}
	await.Until(t, fmt.Sprintf("%d approvals are open", flood), func() bool {
		found, err := e.demands.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return len(found) == flood
	})
	opens.mu.Lock()
	defer opens.mu.Unlock()
	if len(opens.opened) != asked {
		t.Errorf("the approver was written to %d times; want %d", len(opens.opened), asked)
	}
}
