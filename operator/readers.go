package operator

import (
	"context"
	"slices"
	"strings"
)

// maxReadMessages bounds the messages of a conversation whose readers are computed.
const maxReadMessages = 500

// Reader is a party of a conversation: the agent tells it what is in the messages that it may see, and their answers.
type Reader struct {
	Principal string `json:"principal"`
	Address   string `json:"address,omitempty"` // of its newest message, as stated; empty = it wrote none
	Sees      int    `json:"sees"`              // messages that its history may have
	Wrote     int    `json:"wrote"`             // of them: it wrote them
	Addressed int    `json:"addressed"`         // of them: they named it, and others wrote them
}

// Readers says who can read a conversation, and why.
type Readers struct {
	Agent    string   `json:"agent"`
	ThreadID string   `json:"thread_id"`
	Messages int      `json:"messages"` // that were looked at, the newest 500 at most
	Open     int      `json:"open"`     // of them: everyone in the conversation may read them
	Readers  []Reader `json:"readers"`  // who sees most comes first
}

// Readers computes who can read a conversation from whom its messages were meant for. fault.NotFound when there is no such conversation.
func (t Takeovers) Readers(ctx context.Context, id ConversationID) (Readers, error) {
	turn, _, err := t.find(ctx, id)
	if err != nil {
		return Readers{}, err
	}
	list, err := t.store.Audiences(ctx, turn.Agent, turn.ThreadID, maxReadMessages)
	if err != nil {
		return Readers{}, err
	}

	found := Readers{Agent: turn.Agent, ThreadID: turn.ThreadID, Messages: len(list)}
	readers := map[string]*Reader{}
	reader := func(principal string) *Reader {
		if readers[principal] == nil {
			readers[principal] = &Reader{Principal: principal}
		}
		return readers[principal]
	}
	for _, one := range list {
		writer := reader(one.Principal)
		writer.Wrote++
		if writer.Address == "" {
			writer.Address = one.Address
		}
		for _, principal := range one.Audience.Parties {
			if principal != one.Principal {
				reader(principal).Addressed++
			}
		}
		if one.Audience.Open {
			found.Open++
		}
	}

	for _, one := range readers {
		for _, message := range list {
			if message.Audience.Has(message.Principal, one.Principal) {
				one.Sees++
			}
		}
		found.Readers = append(found.Readers, *one)
	}
	slices.SortFunc(found.Readers, func(a, b Reader) int {
		if a.Sees != b.Sees {
			return b.Sees - a.Sees
		}
		return strings.Compare(a.Principal, b.Principal)
	})
	return found, nil
}
