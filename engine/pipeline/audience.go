package pipeline

import (
	"context"
	"fmt"
	"maps"

	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// narrowed gives a response the audience that it may have (decision 0131). A demand or a refusal is for the asker alone. What is said
// after a demand is for its asker, too, unless the agent says otherwise: by a visibility, or by naming others in to and cc.
// Adapters read exchange.Reply.Private and decide nothing about it.
func narrowed(turn exchange.TurnRecord, response normalized.Response) normalized.Response {
	policy := response.Policy()
	asked := askedInPrivate(turn) || policy != nil && policypart.Resumable(policy.Kind)
	if policy != nil {
		response.To, response.Cc, response.Visibility = nil, nil, normalized.VisibilityDirect
	}
	if asked && response.Visibility == "" {
		response.Visibility = normalized.VisibilityDirect
	}

	metadata := maps.Clone(response.Metadata)
	delete(metadata, exchange.MetadataAsked) // it is the server's word
	response.Metadata = metadata
	if asked && response.Visibility == normalized.VisibilityDirect {
		response = inPrivate(response)
	}
	return response
}

// inPrivate marks a response that asks its asker in private, or says what was made possible by that: later replies of the turn are private.
func inPrivate(response normalized.Response) normalized.Response {
	metadata := maps.Clone(response.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[exchange.MetadataAsked] = "true"
	response.Metadata, response.Visibility = metadata, normalized.VisibilityDirect
	return response
}

// recallReply fills in what was said before the operator ran a turn again or wrote its answer: the next reply has no wider audience.
func (s *core) recallReply(ctx context.Context, turn *exchange.TurnRecord) error {
	if turn.Retried == "" || turn.Response != nil {
		return nil
	}
	said, _, err := s.options.Store.Reply(ctx, turn.Retried)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the earlier reply of turn %s: %w", turn.ID, err)
	}
	turn.Response = &said.Response
	return nil
}

// askedInPrivate reports whether the turn asked its asker for something. The reply that it had last says so where no demand was decided:
// an operator writes the answer instead, or someone signed in elsewhere.
func askedInPrivate(turn exchange.TurnRecord) bool {
	return demand.AskedPrivately(turn) || turn.Response != nil && turn.Response.Metadata[exchange.MetadataAsked] != ""
}
