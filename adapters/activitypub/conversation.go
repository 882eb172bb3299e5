package activitypub

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// maxConversation bounds the posts that a conversation shows: each of ours costs reads.
const maxConversation = 100

// conversationIRI is the context of a conversation that nobody else has named (FEP-7888). The first question of it that came
// here stands for it, with all that was said to it.
func (s *site) conversationIRI(turn string) string { return s.base + "/contexts/" + turn }

// namedConversation is the context in which a reply stands: that of the question, or our own. A question that answers one
// of our posts inherited its context when it was accepted.
func (r *renderer) namedConversation(reply exchange.Reply, asked route) string {
	return cmp.Or(asked.Context, r.conversationIRI(reply.TurnID))
}

// inheritedContext is the context of the post that a question without one answers.
func (n *notes) inheritedContext(parent exchange.ThreadEntry) string {
	var kept route
	if json.Unmarshal(parent.Route, &kept) == nil && kept.Context != "" {
		return kept.Context
	}
	return n.conversationIRI(parent.TurnID)
}

// conversationDocument is a conversation as far as we know it (FEP-7888).
type conversationDocument struct {
	Context      string   `json:"@context"`
	ID           string   `json:"id"`
	Type         string   `json:"type"`
	AttributedTo string   `json:"attributedTo"`
	TotalItems   int      `json:"totalItems"`
	OrderedItems []string `json:"orderedItems"`
}

// serveConversation shows which posts that everybody may read belong to a conversation that we named.
func (c *collections) serveConversation(w http.ResponseWriter, r *http.Request) {
	if !c.verifier.mayRead(w, r) {
		return
	}
	turn := httpserver.Param(r, "turn")
	reply, err := c.options.Replies.Answer(r.Context(), turn)
	if err != nil && !fault.Is(err, fault.NotFound) {
		refuse(w, r, unavailable(err))
		return
	}
	asked, unread := readRoute(reply.Route)
	if err != nil || unread != nil || !ownWay(reply) || asked.Context != "" || !c.published(reply) {
		refuse(w, r, fault.New(fault.NotFound, "no such object"))
		return
	}
	items, err := c.conversation(r.Context(), reply)
	if err != nil {
		refuse(w, r, unavailable(err))
		return
	}
	c.write(w, r, conversationDocument{
		Context: document.ActivityStreams, ID: c.conversationIRI(turn), Type: "OrderedCollection", AttributedTo: c.actorIRI(reply.Agent),
		TotalItems: len(items), OrderedItems: items,
	})
}

// conversation lists the question of a reply, the reply's posts, and in the same way every question about them that was
// answered, oldest first.
func (c *collections) conversation(ctx context.Context, first exchange.Reply) ([]string, error) {
	var items []string
	waiting := []exchange.Reply{first}
	for len(waiting) > 0 && len(items) < maxConversation {
		reply := waiting[0]
		waiting = waiting[1:]
		asked, err := readRoute(reply.Route)
		if err != nil || !openly(asked.Visibility) || !c.published(reply) || !reply.DeletedAt.IsZero() {
			continue
		}
		if len(reply.Message.Parts) > 0 { // the question was not taken back
			items = append(items, asked.Note)
		}
		for post := 1; post <= max(reply.Posts, 1); post++ {
			items = append(items, c.postIRI(reply.ID, post))
		}

		_, values, err := c.options.State.List(ctx, repliesNamespace+reply.ID, "", maxReplies)
		if err != nil {
			return nil, err
		}
		for _, value := range values {
			var kept followUp
			if json.Unmarshal(value, &kept) != nil {
				continue
			}
			next, _, err := c.options.Replies.Reply(ctx, kept.Reply)
			if err == nil {
				waiting = append(waiting, next)
			} else if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Gone) {
				return nil, err
			}
		}
	}
	return items, nil
}
