package pipeline

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/queue"
	"inbox/normalized"
)

// An answer may name agents in to and cc that its own way cannot reach: where nothing is relayed at all, every agent;
// everywhere, agents of this server. They are asked by the engine, with the question and the answer, and what they say is
// put below the answer: one reply, without a second run of the agent. The answer waits as the call with Number 0.

// mentioned takes the agents that are to be asked out of to and cc. The last call is the draft itself.
func (s *Service) mentioned(
	agent agents.Entry, turn exchange.TurnRecord, response normalized.Response,
) (calls []exchange.Dispatch, out normalized.Response) {
	if response.Silent || len(response.To)+len(response.Cc) == 0 {
		return nil, response
	}
	everyone := turn.Message.RecipientCapabilities.MentionRelay.Kind == normalized.RelayNone
	var names []string
	take := func(list []string) (rest []string) {
		for _, text := range list {
			_, here, err := s.here(agent.Profile.Address, text)
			if !here && err == nil && !everyone {
				rest = append(rest, text)
				continue
			}
			if name := s.canonical(agent, text); !slices.Contains(names, name) && !s.takesPart(agent, turn, name) {
				names = append(names, name)
			}
		}
		return rest
	}
	response.To, response.Cc = take(response.To), take(response.Cc)
	if len(names) == 0 || response.Outcome() != normalized.StatusCompleted {
		return nil, response // a demand or a failure is for the asker alone
	}
	parts := briefing(agent, turn, response, s.options.Limits)
	for _, name := range names[:min(len(names), maxCalls)] {
		calls = append(calls, exchange.Dispatch{To: name, Parts: parts, Combine: true})
	}
	draft := response
	return append(calls, exchange.Dispatch{Combine: true, Response: &draft}), response
}

// takesPart reports whether the address is one of the two who talk here.
func (s *Service) takesPart(agent agents.Entry, turn exchange.TurnRecord, name string) bool {
	return same(name, agent.Profile.Address) || same(name, turn.Message.Sender.Address)
}

func same(a, b string) bool {
	left, errLeft := identity.ParseAddress(a)
	right, errRight := identity.ParseAddress(b)
	return errLeft == nil && errRight == nil && identity.CanonicalAgent(left) == identity.CanonicalAgent(right)
}

// briefing is what a mentioned agent gets to read: who asked what, who answered what.
func briefing(agent agents.Entry, turn exchange.TurnRecord, response normalized.Response, limits normalized.Limits) []normalized.Part {
	question := sendable(turn.Message.Parts)
	answer := sendable(response.Parts)
	parts := []normalized.Part{normalized.Text(turn.Message.Sender.Address + ":")}
	parts = append(parts, question[:min(len(question), max(0, limits.Parts-len(answer)-2))]...)
	parts = append(append(parts, normalized.Text(agent.Profile.Address+":")), answer...)
	return parts[:min(len(parts), limits.Parts)]
}

// sendable are the parts that say something to others: no tool calls, no demands, nothing unknown.
func sendable(parts []normalized.Part) (said []normalized.Part) {
	for _, p := range parts {
		switch p.Kind {
		case normalized.PartText, normalized.PartFile, normalized.PartLink, normalized.PartArtifact:
			said = append(said, p)
		}
	}
	return said
}

// combined returns the one answer of a turn whose mentioned agents have all been asked. A job whose id is that of the turn
// is its first: it has asked nobody yet.
func (s *Service) combined(ctx context.Context, job queue.Job, turn exchange.TurnRecord) (response normalized.Response, ok bool, err error) {
	if job.ID == turn.ID {
		return response, false, nil
	}
	calls, err := s.options.Store.Dispatches(ctx, turn.ID)
	if err != nil {
		return response, false, err
	}
	var answers []exchange.Dispatch
	for _, d := range calls {
		switch {
		case d.Number == 0 && d.Response != nil:
			response, ok = *d.Response, true
		case d.Combine:
			answers = append(answers, d)
		}
	}
	if !ok {
		return response, false, nil
	}
	return s.joined(turn, response, answers), true, nil
}

// joined puts the answers below the draft, each one whole or with a word that it does not fit.
func (s *Service) joined(turn exchange.TurnRecord, draft normalized.Response, answers []exchange.Dispatch) normalized.Response {
	for _, d := range answers {
		if d.Number == 0 && d.To == "" {
			continue
		}
		for _, parts := range [][]normalized.Part{said(d), {remark("The answer of %s does not fit in here.", d.To)}} {
			longer := draft
			longer.Parts = slices.Concat(draft.Parts, parts)
			if normalized.ValidateResponse(longer, turn.Message, s.options.Limits) == nil {
				draft = longer
				break
			}
		}
	}
	return draft
}

// said writes one answer down. A demand of another agent is told in its own words and is never a success.
func said(d exchange.Dispatch) []normalized.Part {
	answer := d.Response
	switch {
	case answer == nil, answer.Error != nil && answer.Error.Code == codeUnreachable:
		return []normalized.Part{remark("%s could not be reached.", d.To)}
	case answer.Silent:
		return []normalized.Part{remark("%s did not answer.", d.To)}
	case answer.Error != nil:
		return []normalized.Part{remark("%s could not help: %s", d.To, answer.Error.Message)}
	}
	parts := sendable(answer.Parts)
	if policy := answer.Policy(); policy != nil {
		parts = append(parts, remark("%s asks for something first: %s", d.To, policy.Message))
	}
	if len(parts) == 0 {
		return []normalized.Part{remark("%s did not answer.", d.To)}
	}
	return append([]normalized.Part{normalized.Markdown("**" + d.To + "**:")}, parts...)
}

func remark(format string, arguments ...any) normalized.Part {
	return normalized.Text("(" + fmt.Sprintf(format, arguments...) + ")")
}

// unanswered are calls that were never made.
func unanswered(calls []exchange.Dispatch) []exchange.Dispatch {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].Response = nil
	}
	return calls
}

// cut shortens a text between two characters.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
