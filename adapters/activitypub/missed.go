package activitypub

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
)

const (
	missedNamespace = "activitypub.missed" // inbox → times at which it was not there
	missedLife      = 7 * 24 * time.Hour
	missedLimit     = 3
	maxDropped      = 1000 // followers that one answer can cost
)

// missedOften counts that an inbox was not found and says whether that was the third time in seven days.
func (t *transport) missedOften(ctx context.Context, inbox string) bool {
	value, found, err := t.options.State.Get(ctx, missedNamespace, inbox)
	var times []time.Time
	if err != nil || found && json.Unmarshal(value, &times) != nil {
		return false
	}
	now := t.now().UTC()
	times = append(slices.DeleteFunc(times, func(at time.Time) bool { return now.Sub(at) >= missedLife }), now)
	if len(times) >= missedLimit {
		_ = t.options.State.Delete(ctx, missedNamespace, inbox)
		return true
	}
	if value, err := json.Marshal(times); err == nil {
		_ = t.options.State.Put(ctx, missedNamespace, inbox, value, now.Add(missedLife))
	}
	return false
}

// dropFollowers removes those whom an inbox that is gone stood for: one actor, or all followers who share it. A row that
// stays costs another attempt, so failures are only logged: the delivery is over either way.
func (f *follows) dropFollowers(ctx context.Context, p parcel) {
	if p.actor == "" {
		return
	}
	gone := []string{p.actor}
	if p.shared {
		gone = f.followersAt(ctx, p)
	}
	for _, actor := range gone {
		if _, err := f.unfollow(ctx, p.agent, actor); err != nil {
			slog.WarnContext(ctx, "a follower whose inbox is gone could not be removed", "actor", actor, "error", err)
			return
		}
	}
}

// followersAt finds the followers on the actor's server who share the inbox.
func (f *follows) followersAt(ctx context.Context, p parcel) (actors []string) {
	base, ok := document.Origin(p.actor)
	if !ok {
		return nil
	}
	after := base + "/"
	for len(actors) < maxDropped {
		keys, values, err := f.options.State.List(ctx, followerNamespace+p.agent, after, spreadPage)
		if err != nil {
			return actors
		}
		stored, err := f.options.State.Several(ctx, actorNamespace, keys)
		if err != nil {
			return actors
		}
		for i, actor := range keys {
			var entry follower
			if !strings.HasPrefix(actor, base+"/") {
				return actors
			}
			if json.Unmarshal(values[i], &entry) != nil {
				continue
			}
			if entry.renew(stored[actor]); entry.SharedInbox == p.inbox {
				actors = append(actors, actor)
			}
		}
		if len(keys) < spreadPage {
			return actors
		}
		after = keys[len(keys)-1]
	}
	return actors
}
