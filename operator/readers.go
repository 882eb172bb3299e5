package operator

import (
	"context"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/operator/lookup"
)

// maxReadMessages bounds the messages of a conversation whose readers are computed.
const maxReadMessages = 500

// Reader is someone to whom the agent tells what is in messages of a conversation, and their answers: a party of it, or a principal that is
// linked with a party.
type Reader struct {
	Principal  string   `json:"principal" doc:"who can read: the issuer and the subject of a proof"`
	Address    string   `json:"address,omitempty" doc:"of its newest message, as stated; left out if it wrote none"`
	Sees       int      `json:"sees" doc:"messages that its history may have"`
	Wrote      int      `json:"wrote" doc:"of them, it wrote them"`
	Addressed  int      `json:"addressed" doc:"of them, others wrote them and addressed it"`
	ByLink     int      `json:"by_link" doc:"of them, it can read them only because it is linked with a party"`
	LinkedWith []string `json:"linked_with,omitempty" doc:"parties with which it is linked for the agent, if the history of the agent follows the person"`
}

// Readers says who can read a conversation, and why.
type Readers struct {
	Agent    string   `json:"agent" doc:"the agent of the conversation"`
	ThreadID string   `json:"thread_id" doc:"id of the conversation"`
	Messages int      `json:"messages" doc:"messages that were looked at, the newest 500 at most"`
	Open     int      `json:"open" doc:"of them, everyone in the conversation may read them"`
	Readers  []Reader `json:"items" doc:"parties and the addresses that are linked with them; the one that can read most comes first"`
	Next     string   `json:"next" doc:"empty: all of them are on one page"`
}

// Readers computes who can read a conversation from whom its messages were meant for, and from the links of its parties. fault.NotFound when
// there is no such conversation.
func (a Arrivals) Readers(ctx context.Context, id lookup.ConversationID) (Readers, error) {
	turn, _, err := a.index.Conversation(ctx, id)
	if err != nil {
		return Readers{}, err
	}
	list, err := a.store.Audiences(ctx, turn.Agent, turn.ThreadID, maxReadMessages)
	if err != nil {
		return Readers{}, err
	}

	found := Readers{Agent: turn.Agent, ThreadID: turn.ThreadID, Messages: len(list), Readers: []Reader{}}
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

	links, err := a.linksOfParties(ctx, turn.Agent, readers)
	if err != nil {
		return Readers{}, err
	}
	for principal, with := range links {
		reader(principal).LinkedWith = with
	}

	for _, one := range readers {
		one.count(list)
		if one.Sees > 0 {
			found.Readers = append(found.Readers, *one)
		}
	}
	slices.SortFunc(found.Readers, func(a, b Reader) int {
		if a.Sees != b.Sees {
			return b.Sees - a.Sees
		}
		return strings.Compare(a.Principal, b.Principal)
	})
	return found, nil
}

// count counts the messages that the reader may see. A party sees here what the addresses that are linked with it may see; the history of
// its other conversations, and that of an address that is no party, has only what they wrote.
func (r *Reader) count(list []exchange.MessageAudience) {
	party := r.Wrote+r.Addressed > 0
	for _, one := range list {
		byLink := slices.ContainsFunc(r.LinkedWith, func(other string) bool {
			return one.Shared && one.Principal == other || party && one.Audience.Has(one.Principal, other)
		})
		switch {
		case party && one.Audience.Has(one.Principal, r.Principal):
			r.Sees++
		case byLink:
			r.Sees++
			r.ByLink++
		}
	}
}

// linksOfParties returns with which parties of a conversation a principal is linked, in order; none where the agent's history follows the thread.
func (a Arrivals) linksOfParties(ctx context.Context, agent string, parties map[string]*Reader) (map[string][]string, error) {
	settings := a.current()
	configured, err := configuredAgent(settings, agent)
	if err != nil || configured.History.Scope != agents.HistoryPerson {
		return nil, nil //nolint:nilerr // an agent that is gone tells no one anything
	}

	linked, believed := map[string][]string{}, Believed(settings)
	for party := range parties {
		links, err := a.store.LinksOf(ctx, agent, party)
		if err != nil {
			return nil, err
		}
		for i := range links {
			own, other, counts := links[i].With(agent, party, time.Now())
			if counts && believed(own) && believed(other) {
				linked[other.Principal] = append(linked[other.Principal], party)
			}
		}
	}
	for _, with := range linked {
		slices.Sort(with)
	}
	return linked, nil
}
