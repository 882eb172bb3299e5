package pipeline_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// posted is a message that everyone may read.
func posted(user, id, thread string) exchange.Inbound {
	in := from(user, id, thread)
	in.Audience.Open = true
	return in
}

// TestEarlierPrivateAnswersStayPrivate: an answer to its asker alone is told to no one else, also when a public one came after it, and is no
// part of a history whose answer others read.
func TestEarlierPrivateAnswersStayPrivate(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if len(turn.Message.History) > 0 {
				return w.agent(ctx, turn)
			}
			private := texts("your PIN is 4711")
			private.Visibility = normalized.VisibilityDirect
			return normalized.Whole(private)
		}, agents.Settings{})
		turn := e.settled(t, e.receive(t, posted("ana", "m1", "thread")).TurnID)
		e.peer.next(t)
		if _, err := e.pipeline.WriteAnswer(t.Context(), pipeline.OperatorAnswer{TurnID: turn.ID, By: "ops", Text: "It is done."}); err != nil {
			t.Fatal(err)
		}
		e.peer.next(t)
		e.ends(t, turn.ID, exchange.StateAnswered)

		if got := w.ask(t, e, posted("bo", "m2", "thread")); got != "hello m1 | It is done." {
			t.Errorf("another person's history is %q", got)
		}
		copied := from("ana", "m4", "thread")
		copied.Message.Surface = &normalized.Surface{
			To: []normalized.SurfaceRecipient{{Address: "@echo@agents.test"}}, Cc: []normalized.SurfaceRecipient{{Address: "@bo@peer.test"}},
		}
		for name, in := range map[string]exchange.Inbound{"a post": posted("ana", "m3", "thread"), "a mail with Cc": copied} {
			if got := w.ask(t, e, in); !strings.HasPrefix(got, "hello m1 | It is done. | ") || strings.Contains(got, "4711") {
				t.Errorf("the asker's history for %s is %q", name, got)
			}
		}
		if got := w.ask(t, e, from("ana", "m5", "thread")); !strings.HasPrefix(got, "hello m1 | your PIN is 4711  It is done. | ") {
			t.Errorf("the asker's own history is %q", got)
		}
	})
}

// TestPrivateCallsStayApart: an agent that is asked after consent remembers nothing of it for others in the same open conversation.
func TestPrivateCallsStayApart(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		threads := map[string]string{}
		front := &script{name: "echo"}
		front.answer = func(turn agents.Turn) normalized.Response {
			if strings.HasPrefix(turn.Message.Sender.Address.String(), "@ana") && turn.Message.PolicyResolution == nil {
				return wants(nil)(turn)
			}
			return relays("what of "+turn.Message.Sender.Address.String(), "@far@far.test")(turn)
		}
		e := composed(t, url, func(o *pipeline.Options) {
			o.Caller = callFunc(func(_ context.Context, d exchange.Dispatch) (normalized.Response, error) {
				threads[d.Sender.Address.String()] = d.ThreadID
				return texts("file"), nil
			})
		}, front)
		e.consented(t, posted("ana", "m1", "thread"), true)
		e.peer.next(t)
		e.answered(t, posted("bob", "m2", "thread"))
		e.answered(t, posted("carol", "m3", "thread"))
		if threads["@ana@peer.test"] == threads["@bob@peer.test"] {
			t.Error("what was made possible by consent is asked in the conversation of everyone")
		}
		if threads["@bob@peer.test"] != threads["@carol@peer.test"] {
			t.Error("an open conversation is two for the agent that is asked")
		}
	})
}

// TestOneMailboxHasOneHistory: the history of a mailbox has what it wrote under another case of its address.
func TestOneMailboxHasOneHistory(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{})
		var seen []string
		for i, user := range []string{"Ana", "ana", "ANA"} {
			in := from(user, fmt.Sprintf("m%d", i), "thread")
			in.Audience.Parties = in.Message.Sender.Names()[1:]
			seen = append(seen, w.ask(t, e, in))
		}
		if seen[1] != "hello m0 | re: hello m0" || seen[2] != seen[1]+" | hello m1 | re: hello m1" {
			t.Errorf("histories %q", seen)
		}
	})
}

// TestAnswersForFollowersAreNotToldToOthers: an answer of an agent to followers reaches its asker alone, whose followers are not the agent's.
func TestAnswersForFollowersAreNotToldToOthers(t *testing.T) {
	w := &witness{seen: map[string]string{}}
	e := start(t, "sqlite", func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		if len(turn.Message.History) > 0 {
			return w.agent(ctx, turn)
		}
		narrow := texts("your PIN is 4711")
		narrow.Visibility = normalized.VisibilityFollowers
		return normalized.Whole(narrow)
	}, agents.Settings{})
	e.settled(t, e.receive(t, posted("ana", "m1", "thread")).TurnID)
	if got := w.ask(t, e, posted("bo", "m2", "thread")); got != "hello m1" {
		t.Errorf("another person's history is %q", got)
	}
}

// TestStatedAddressOfTheAgentOpensNothing: a private answer stays with its asker, also if they state the agent's own address.
func TestStatedAddressOfTheAgentOpensNothing(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if len(turn.Message.History) > 0 {
				return w.agent(ctx, turn)
			}
			private := texts("your PIN is 4711")
			private.Visibility = normalized.VisibilityDirect
			return normalized.Whole(private)
		}, agents.Settings{})
		in := posted("ana", "m1", "thread")
		in.Message.Sender.Address = identity.Stated(in.Message.Recipient)
		e.settled(t, e.receive(t, in).TurnID)
		e.peer.next(t)

		if got := w.ask(t, e, posted("bo", "m2", "thread")); got != "hello m1" {
			t.Errorf("another person's history is %q", got)
		}
	})
}
