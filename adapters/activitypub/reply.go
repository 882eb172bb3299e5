package activitypub

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// replyAt finds the answer whose post an IRI names. It is not found where the IRI is another server's or the answer is gone.
func (s *site) replyAt(ctx context.Context, iri string) (reply exchange.Reply, found bool, err error) {
	id, ours := s.replyID(iri)
	if !ours {
		return reply, false, nil
	}

	switch reply, _, err = s.options.Replies.Reply(ctx, id); {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Gone):
		return reply, false, nil
	case err != nil:
		return reply, false, unavailable(err)
	}
	return reply, true, nil
}

// published reports whether everyone may read the note of a reply.
func (s *site) published(reply exchange.Reply) bool {
	if !ownWay(reply) {
		return false
	}
	asked, err := readRoute(reply.Route)
	return err == nil && openly(s.visibilityOf(reply, asked))
}

// ownWay reports whether a reply is a note at all.
func ownWay(reply exchange.Reply) bool {
	return reply.Message.ReceivedVia == normalized.ViaActivityPub && !reply.Response.Silent
}

// visibilityOf decides who may read the reply. A demand or refusal by policy and an acknowledgement are for the asker
// alone.
func (s *site) visibilityOf(reply exchange.Reply, asked route) string {
	if hasPolicy(reply.Response) || reply.Notice == exchange.NoticeAck {
		return normalized.VisibilityDirect
	}
	return replyVisibility(asked.Visibility, reply.Response.Visibility, s.options.PublicReplies)
}

// followersOf is the collection that open answers are addressed to; empty = followers get none.
func (s *site) followersOf(agent string) string {
	if !s.options.FollowersGetReplies {
		return ""
	}
	return s.actorIRI(agent) + "/followers"
}

// maxExtras is how many people an agent can add to one reply.
const maxExtras = 20

// extras are the addresses that the agent added, without the asker and without our own agents, who are reached
// inside this server. A policy answer is private and loses them all.
func (s *site) extras(reply exchange.Reply, asked route) []identity.Address {
	if hasPolicy(reply.Response) {
		return nil
	}
	var extras []identity.Address
	seen := map[string]bool{strings.ToLower(asked.Address): true}
	for _, text := range append(append([]string{}, reply.Response.To...), reply.Response.Cc...) {
		address, err := identity.ParseAddress(text)
		key := strings.ToLower(address.String())
		if err != nil || seen[key] || s.hosts[address.Domain] || len(extras) >= maxExtras {
			continue
		}

		seen[key] = true
		extras = append(extras, address)
	}

	return extras
}

func readRoute(raw json.RawMessage) (route, error) {
	var asked route
	if err := json.Unmarshal(raw, &asked); err != nil {
		return route{}, fmt.Errorf("decode route: %w", err)
	}
	return asked, nil
}
