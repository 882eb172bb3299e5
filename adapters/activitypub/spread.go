package activitypub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

const (
	spreadPage   = 100             // followers that are read for one piece
	followedLife = 5 * time.Second // how long a first follower may be overlooked
	maxSeen      = 50              // shared inboxes of one host that are remembered between pieces
)

// hasFollowers says whether a reply may have to go to followers. Their number is read every few seconds at most.
func (f *follows) hasFollowers(ctx context.Context, agent string) bool {
	if !f.options.FollowersGetReplies {
		return false
	}
	if known, found := f.followed.get(agent, f.now()); found {
		return known
	}
	keys, _, err := f.options.State.List(ctx, followerNamespace+agent, "", 1)
	if err != nil {
		return true // the job that spreads the reply finds out
	}
	f.followed.put(agent, len(keys) > 0, f.now().Add(followedLife))
	return len(keys) > 0
}

// spreading is a cursor in the followers of an agent, who are read in the order of their ids: those of one server come
// together.
type spreading struct {
	After string   `json:"after"`          // id of the last follower that was read
	Host  string   `json:"host,omitempty"` // of that follower
	Seen  []string `json:"seen,omitempty"` // inboxes of that host that were given already
}

// Spread gives the inboxes of the followers, each once: the shared inbox where a server has one. Whoever the plan
// reaches is left out.
func (o *outbox) Spread(ctx context.Context, reply exchange.Reply, cursor string) ([]exchange.Destination, string, error) {
	var at spreading
	if cursor != "" {
		if err := json.Unmarshal([]byte(cursor), &at); err != nil {
			return nil, "", fault.GiveUp("the stored cursor cannot be read", err)
		}
	}
	asked, err := readRoute(reply.Route)
	if err != nil {
		return nil, "", fault.GiveUp("the stored question cannot be read", err)
	}
	places, more, err := o.follows.followerInboxes(ctx, reply.Agent, &at)
	if err != nil {
		return nil, "", err
	}
	places = slices.DeleteFunc(places, func(p destination) bool {
		return p.Inbox == asked.SharedInbox || p.Inbox == asked.Inbox
	})
	destinations, err := chained(places, max(reply.Posts, 1))
	if err != nil || !more {
		return destinations, "", err
	}
	next, err := json.Marshal(at)
	if err != nil {
		return nil, "", fmt.Errorf("encode cursor: %w", err)
	}
	return destinations, string(next), nil
}

// followerInboxes gives the inboxes of the next followers and moves the cursor behind them. Hosts that the operator
// excludes are left out, and so is whoever told the agent to stop or wants nothing of programs.
func (f *follows) followerInboxes(ctx context.Context, agent string, at *spreading) (places []destination, more bool, err error) {
	keys, values, err := f.options.State.List(ctx, followerNamespace+agent, at.After, spreadPage)
	if err != nil {
		return nil, false, err
	}
	stored, err := f.options.State.Several(ctx, actorNamespace, keys)
	if err != nil {
		return nil, false, err
	}
	for i, actor := range keys {
		var entry follower
		at.After = actor
		if json.Unmarshal(values[i], &entry) != nil {
			continue
		}
		if entry.renew(stored[actor]); entry.Inbox == "" || entry.NoBot || f.options.Stopped != nil && f.options.Stopped(agent, f.principal(actor)) {
			continue
		}
		place := destination{Actor: actor, Inbox: entry.Inbox}
		if entry.SharedInbox != "" {
			place.Inbox, place.Shared = entry.SharedInbox, true
		}
		if host := document.HostOf(actor); host != at.Host {
			at.Host, at.Seen = host, nil
		}
		if slices.Contains(at.Seen, place.Inbox) || !f.admits(document.HostOf(place.Inbox)) {
			continue
		}
		if place.Shared && len(at.Seen) < maxSeen {
			at.Seen = append(at.Seen, place.Inbox)
		}
		places = append(places, place)
	}
	return places, len(keys) == spreadPage, nil
}

// renew takes over what the actor says by now, where we know it: its inboxes may have moved since the Follow, and its
// profile may ask programs not to write unasked. Where others of the same server follow, its shared inbox gets the post all
// the same: that server decides who sees it.
func (f *follower) renew(stored []byte) {
	var known remoteActor
	if stored == nil || json.Unmarshal(stored, &known) != nil {
		return
	}
	if f.NoBot = known.NoBot; known.Inbox != "" {
		f.Inbox, f.SharedInbox = known.Inbox, known.SharedInbox
	}
}
