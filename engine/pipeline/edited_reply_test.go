package pipeline_test

import (
	"testing"

	"inbox/agents"
	"inbox/exchange"
)

// TestAnswerToWhatIsShownAgain: an approver is shown an edited answer in the conversation and answers that with the word.
func TestAnswerToWhatIsShownAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: says("We open at eight.")}
		e := guarded(t, url, agent)
		turn := e.waits(t, message("1"), "approval (reply)")
		notice := e.told(t)
		if _, err := e.demands.EditReply(t.Context(), e.open(t).ID, "operator:eve", "We open at nine."); err != nil {
			t.Fatal(err)
		}

		e.answered(t, reply("owner", "o1", notice, "approve", ""))
		again := e.shownAgain(t)
		if _, err := e.demands.EditReply(t.Context(), e.open(t).ID, "operator:eve", "We open at ten."); err != nil {
			t.Fatal(err)
		}
		e.answered(t, reply("owner", "o2", again, "approve", ""))
		third := e.shownAgain(t)
		if still, err := e.store.Turn(t.Context(), turn.ID); err != nil || still.State != exchange.StateWaiting {
			t.Fatalf("the turn is %s, %v", still.State, err)
		}

		e.answered(t, reply("owner", "o3", third, "approve", ""))
		if done := e.ends(t, turn.ID, exchange.StateAnswered); plain(done.Response)[0] != "We open at ten." {
			t.Errorf("sent: %q", plain(done.Response))
		}
	})
}

// shownAgain returns the next delivery that shows a request.
func (e *engine) shownAgain(t *testing.T) exchange.Delivery {
	t.Helper()
	for {
		if d := e.peer.next(t); d.Reply.Response.Policy() != nil {
			return d
		}
	}
}
