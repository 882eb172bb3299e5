package pipeline_test

import (
	"encoding/json"
	"testing"

	"inbox/agents"
	"inbox/internal/await"
	"inbox/normalized"
	"inbox/policypart"
)

// TestEditedMessageNeedsANewLogin: somebody else is to log in for a message, and its sender changes it once the link is under way.
func TestEditedMessageNeedsANewLogin(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{answer: func(agents.Turn) normalized.Response {
			return normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{
				Kind: policypart.Unauthorized, Message: "Log in.", AuthChallenges: []policypart.Challenge{{Scheme: "Bearer"}},
			}}}}
		}}
		e := guarded(t, url, agent)
		in := message("1")
		turn := e.waits(t, in, "auth")
		for _, words := range []string{"a payslip", "two payslips", "three payslips", "all the payslips"} {
			before, found, err := e.store.DemandOfTurn(t.Context(), turn.ID)
			if err != nil || !found {
				t.Fatal(err)
			}
			if err := e.pipeline.Amend(t.Context(), "echo", in.Message.ID, in.Message.Sender.Principal(), []normalized.Part{normalized.Text(words)}); err != nil {
				t.Fatal(err)
			}

			if old, err := e.store.Demand(t.Context(), before.ID); err != nil || old.Status != policypart.StatusDropped {
				t.Fatalf("the login is for other words than %q and is %s, %v", words, old.Status, err)
			}
			await.Until(t, "the agent asks anew", func() bool { // the newest demand is this one, whatever its id is
				after, _, err := e.store.DemandOfTurn(t.Context(), turn.ID)
				var shown struct{ Question string }
				return err == nil && after.ID != before.ID && json.Unmarshal(after.Notes, &shown) == nil && shown.Question == words
			})
		}
	})
}
