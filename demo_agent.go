package inbox

import (
	"context"
	"iter"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// demoBooker is the demo's second agent: it acts in somebody's name and therefore asks for consent first.
const demoBooker = "booker"

// addBooker registers the agent with the server of the demo.
func (s *Server) addBooker() error {
	return s.Register(exchange.AgentProfile{
		Name: demoBooker, DisplayName: "Booker", Summary: "Books a table, if you agree.", Version: "1.0.0", Kind: "demo",
	}, agents.Func(book), agents.Settings{
		Unverified: agents.UnverifiedRefuse, Access: identity.AccessPolicy{Access: identity.AccessVerified},
	})
}

// book demands consent and answers once it was granted.
func book(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	response := normalized.Response{InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID}
	if resolution := turn.Message.PolicyResolution; resolution != nil && resolution.Outcome == policypart.OutcomeGranted {
		response.Parts = []normalized.Part{normalized.Text("Thank you. The table is booked for eight o'clock.")}
		return normalized.Whole(response)
	}
	response.Status = policypart.ResponseStatus(policypart.ConsentRequired)
	response.Parts = []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{
		Kind: policypart.ConsentRequired, Title: "May I book a table in your name?", ActionLabel: "Agree or decline",
		Message: "I want to book a table for two, tonight at eight.", Scopes: []string{"table.book"},
	}}}
	return normalized.Whole(response)
}
