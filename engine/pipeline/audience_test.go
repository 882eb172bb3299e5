package pipeline_test

import (
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
	"inbox/policypart"
)

// wants asks for consent first, with its eyes on everybody, and then answers.
func wants(answer func(agents.Turn) normalized.Response) func(agents.Turn) normalized.Response {
	return func(turn agents.Turn) normalized.Response {
		if turn.Message.PolicyResolution != nil {
			return answer(turn)
		}
		return normalized.Response{
			To: []string{"@bob@peer.test"}, Visibility: normalized.VisibilityPublic,
			Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.ConsentRequired, Message: "May I read your file?"}}},
		}
	}
}

// consented receives a message and grants or denies what its agent demands.
func (e *engine) consented(t *testing.T, in exchange.Inbound, grant bool) (turnID string) {
	t.Helper()
	turn := e.settled(t, e.receive(t, in).TurnID)
	asked := e.peer.next(t).Reply
	if turn.State != exchange.StateWaiting || !asked.Private() || !asked.Confidential() || len(asked.Response.To) != 0 {
		t.Fatalf("the turn is %s, and the demand is for %q, %v", turn.State, asked.Response.Visibility, asked.Response.To)
	}
	e.decide(t, asked, grant)
	return turn.ID
}

func (e *engine) decide(t *testing.T, asked exchange.Reply, grant bool) {
	t.Helper()
	shown := e.demands.Present(*asked.Response.Policy())
	if _, err := e.demands.Decide(t.Context(), strings.TrimPrefix(shown.URL, "https://inbox.test/policy/"), grant); err != nil {
		t.Fatal(err)
	}
}

// TestWhatWasAskedInPrivateIsAnsweredInPrivate: the answer after a demand is for whom the demand was, unless its agent says otherwise.
func TestWhatWasAskedInPrivateIsAnsweredInPrivate(t *testing.T) {
	others := []string{"@bob@peer.test"}
	for name, c := range map[string]struct {
		answer        func(agents.Turn) normalized.Response
		grant         bool
		visibility    string
		to            []string
		private, mark bool
	}{
		"an answer": {says("4711"), true, normalized.VisibilityDirect, nil, true, true},
		"direct": {func(agents.Turn) normalized.Response {
			r := texts("4711")
			r.Visibility = normalized.VisibilityDirect
			return r
		}, true, normalized.VisibilityDirect, nil, true, true},
		"public": {func(agents.Turn) normalized.Response {
			r := texts("done")
			r.Visibility, r.Metadata = normalized.VisibilityPublic, map[string]string{exchange.MetadataAsked: "true", "kept": "yes"}
			return r
		}, true, normalized.VisibilityPublic, nil, false, false},
		"unlisted": {func(agents.Turn) normalized.Response {
			r := texts("done")
			r.Visibility = normalized.VisibilityUnlisted
			return r
		}, true, normalized.VisibilityUnlisted, nil, false, false},
		"to somebody": {func(agents.Turn) normalized.Response {
			r := texts("for both")
			r.To = others
			return r
		}, true, normalized.VisibilityDirect, others, true, true},
		"a failure": {func(agents.Turn) normalized.Response { panic("4711") }, true, normalized.VisibilityDirect, nil, true, true},
		"a refusal": {func(agents.Turn) normalized.Response {
			return normalized.Response{To: others, Visibility: normalized.VisibilityPublic, Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.Forbidden, Message: "Not you."}}}}
		}, true, normalized.VisibilityDirect, nil, true, true},
		"a denial": {nil, false, normalized.VisibilityDirect, nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, url string) {
				e := composed(t, url, nil, &script{name: "echo", answer: wants(c.answer)})
				turnID := e.consented(t, message("m1"), c.grant)
				reply := e.peer.next(t).Reply
				if reply.Response.Visibility != c.visibility || strings.Join(reply.Response.To, " ") != strings.Join(c.to, " ") ||
					reply.Private() != c.private || reply.Confidential() != c.mark {
					t.Errorf("%q is for %q, %v; private %v, confidential %v", plain(&reply.Response), reply.Response.Visibility, reply.Response.To, reply.Private(), reply.Confidential())
				}
				await.Until(t, "the turn has ended", func() bool {
					turn, err := e.store.Turn(t.Context(), turnID)
					return err == nil && exchange.Terminal(turn.State) && turn.Response.Visibility == c.visibility
				})
			})
		})
	}
}

// TestRunAgainInPrivate: an answer that failed after a demand, and was run again by the operator, is as private as the first one.
func TestRunAgainInPrivate(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		failed := false
		e := composed(t, url, nil, &script{name: "echo", answer: wants(func(agents.Turn) normalized.Response {
			if !failed {
				failed = true
				panic("the file is locked")
			}
			return texts("4711")
		})})
		turnID := e.consented(t, message("m1"), true)
		e.peer.next(t)
		e.ends(t, turnID, exchange.StateFailed)
		if err := e.pipeline.Retry(t.Context(), turnID, "ops"); err != nil {
			t.Fatal(err)
		}
		if reply := e.peer.next(t).Reply; plain(&reply.Response)[0] != "4711" || !reply.Private() || !reply.Confidential() {
			t.Errorf("%q is for %q", plain(&reply.Response), reply.Response.Visibility)
		}
	})
}

// TestOperatorAnswersInPrivate: an operator who writes while a demand is open, and after it, writes to whom the demand was.
func TestOperatorAnswersInPrivate(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := composed(t, url, nil, &script{name: "echo", answer: wants(says("4711"))})
		turn := e.settled(t, e.receive(t, message("m1")).TurnID)
		e.peer.next(t)
		for _, text := range []string{"I did it for you.", "And this, too."} {
			if _, err := e.pipeline.WriteAnswer(t.Context(), pipeline.OperatorAnswer{TurnID: turn.ID, By: "ops", Text: text}); err != nil {
				t.Fatal(err)
			}
			if reply := e.peer.next(t).Reply; plain(&reply.Response)[0] != text || !reply.Private() || !reply.Confidential() {
				t.Errorf("%q is for %q", plain(&reply.Response), reply.Response.Visibility)
			}
			e.ends(t, turn.ID, exchange.StateAnswered)
		}
	})
}

// TestApprovalOfOthersNarrowsNothing: what an approver decided was not asked of the asker. After consent and an approval it was.
func TestApprovalOfOthersNarrowsNothing(t *testing.T) {
	for name, asks := range map[string]bool{"approval": false, "consent and approval": true} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, url string) {
				agent := &script{answer: says("done"), settings: agents.Settings{ApproveReplies: agents.ApproveAlways}}
				if asks {
					agent.answer = wants(says("done"))
				}
				e, _ := approving(t, url, agent)
				var turnID string
				if asks {
					turnID = e.consented(t, message("m1"), true)
				} else {
					turnID = e.receive(t, message("m1")).TurnID
				}
				e.told(t)
				if _, err := e.demands.Approve(t.Context(), e.open(t).ID, e.open(t).Digest, "ops"); err != nil {
					t.Fatal(err)
				}
				if reply := e.peer.next(t).Reply; plain(&reply.Response)[0] != "done" || reply.Private() != asks || reply.Confidential() != asks {
					t.Errorf("%q is for %q", plain(&reply.Response), reply.Response.Visibility)
				}
				e.ends(t, turnID, exchange.StateAnswered)
			})
		})
	}
}

// TestLoginElsewhereIsPrivate: where to sign in is told to the asker alone, and so is what the agent found then.
func TestLoginElsewhereIsPrivate(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, signsInElsewhere(50*time.Millisecond), agents.Settings{})
		e.receive(t, message("m1"))
		told := e.peer.next(t).Reply
		go func() { _ = e.pipeline.ExpireTools(t.Context()) }()
		for _, reply := range []exchange.Reply{told, e.peer.next(t).Reply} {
			if !reply.Private() || !reply.Confidential() {
				t.Errorf("%q is for %q", plain(&reply.Response), reply.Response.Visibility)
			}
		}
	})
}

// TestOrdinaryAnswersStayOpen: nothing was asked, and the agent's word about itself does not count.
func TestOrdinaryAnswersStayOpen(t *testing.T) {
	e := composed(t, "sqlite", nil, &script{name: "echo", answer: func(agents.Turn) normalized.Response {
		r := texts("hello")
		r.Metadata = map[string]string{exchange.MetadataAsked: "true"}
		return r
	}})
	e.receive(t, message("m1"))
	if reply := e.peer.next(t).Reply; reply.Private() || reply.Confidential() {
		t.Errorf("for %q, %v", reply.Response.Visibility, reply.Response.Metadata)
	}
}
