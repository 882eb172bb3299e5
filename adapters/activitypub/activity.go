package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"inbox/adapters/activitypub/document"
)

const (
	followerNamespace = "activitypub.follower." // + agent: actor IRI → follower
	followNamespace   = "activitypub.follow"    // deedKey of the Follow → followed
)

// follower is somebody who follows an agent.
type follower struct {
	Follow      string    `json:"follow,omitempty"`
	Inbox       string    `json:"inbox"`
	SharedInbox string    `json:"shared_inbox,omitempty"`
	Since       time.Time `json:"since"`
	NoBot       bool      `json:"nobot,omitempty"` // as the profile said then
}

// followed finds a follow by its id, for an Undo that names nothing else.
type followed struct {
	Agent string `json:"agent"`
	Actor string `json:"actor"`
}

var countedTypes = map[string]bool{
	"Accept": true, "Add": true, "Announce": true, "AnnounceRequest": true, "Block": true, "Create": true, "Delete": true, "Dislike": true, "EmojiReact": true,
	"Flag": true, "Follow": true, "Like": true, "LikeRequest": true, "Move": true, "QuoteRequest": true, "Reject": true, "Remove": true, "ReplyRequest": true,
	"Undo": true, "Update": true, "View": true,
}

// countedType bounds the label of the metric: types are the sender's to invent.
func countedType(kind string) string {
	if countedTypes[kind] {
		return kind
	}
	return "other"
}

// dispatch does what an authenticated activity asks for. What is not in here is acknowledged and counted.
func (a *Adapter) dispatch(ctx context.Context, in *incoming) (outcome string, err error) {
	switch in.kind {
	case "Create":
		return a.create(ctx, in)
	case "Follow":
		return a.follow(ctx, in)
	case "Undo":
		return a.undo(ctx, in)
	case "Block":
		return a.block(ctx, in)
	case "Like", "EmojiReact", "Dislike":
		return a.react(ctx, in)
	case "Announce":
		return a.announced(ctx, in)
	case "QuoteRequest":
		return a.quoteRequested(ctx, in)
	case "LikeRequest", "ReplyRequest", "AnnounceRequest":
		return a.interactionRequested(ctx, in)
	case "Flag":
		return a.flag(ctx, in)
	case "Move":
		return a.moved(ctx, in)
	case "Delete":
		if in.aboutSelf("Delete") {
			return a.actorDeleted(ctx, in)
		}
		return a.noteDeleted(ctx, in)
	case "Update":
		if in.aboutSelf("Update") {
			return a.actorUpdated(ctx, in)
		}
		return a.noteUpdated(ctx, in)
	}
	return outcomeIgnored, nil
}

// follow stores the follower and sends Accept to their personal inbox. A repeated Follow is accepted again: the
// first Accept may have been lost.
func (a *Adapter) follow(ctx context.Context, in *incoming) (string, error) {
	agent, found := a.agentOf(document.Reference(in.activity["object"]))
	if !found {
		return outcomeIgnored, nil
	}
	actor := in.by.actor
	entry := follower{Follow: in.id, Inbox: actor.Inbox, SharedInbox: actor.SharedInbox, Since: a.now().UTC(), NoBot: actor.NoBot}
	if put, err := a.putOffFollow(ctx, agent.Name, actor, entry); put || err != nil {
		return outcomeOf(err)
	}
	if err := a.forgetFollowID(ctx, agent.Name, actor.ID, in.id); err != nil {
		return "", unavailable(err)
	}
	if err := a.putJSON(ctx, followerNamespace+agent.Name, actor.ID, entry); err != nil {
		return "", unavailable(err)
	}
	if in.id != "" {
		if err := a.putJSON(ctx, followNamespace, deedKey(in.id, actor.ID), followed{agent.Name, actor.ID}); err != nil {
			return "", unavailable(err)
		}
	}
	if err := a.answerFollow(ctx, agent.Name, "Accept", in.id, actor); err != nil {
		return "", unavailable(err)
	}
	return outcomeDone, nil
}

func (a *Adapter) putJSON(ctx context.Context, namespace, key string, document any) error {
	value, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("encode %s: %w", namespace, err)
	}
	return a.options.State.Put(ctx, namespace, key, value, time.Time{})
}

// unfollow removes a follower and the way back from the id of the Follow.
func (a *Adapter) unfollow(ctx context.Context, agent, actor string) (string, error) {
	if err := a.forgetFollowID(ctx, agent, actor, ""); err != nil {
		return "", unavailable(err)
	}
	if err := a.options.State.Delete(ctx, PendingNamespace+agent, actor); err != nil {
		return "", unavailable(err)
	}
	return outcomeOf(a.options.State.Delete(ctx, followerNamespace+agent, actor))
}

// forgetFollowID removes the way back from the id of the Follow that stands, unless it is the given one: the ids are the
// sender's to invent, and one follower keeps one row.
func (a *Adapter) forgetFollowID(ctx context.Context, agent, actor, but string) error {
	value, found, err := a.options.State.Get(ctx, followerNamespace+agent, actor)
	var entry follower
	if err != nil || !found || json.Unmarshal(value, &entry) != nil || entry.Follow == "" || entry.Follow == but {
		return err
	}
	return a.options.State.Delete(ctx, followNamespace, deedKey(entry.Follow, actor))
}

// actorUpdated lets the next message fetch profile and key anew; of an actor who was fetched a moment ago the one after a
// pause, so that a storm of Updates costs few fetches and the last one still counts.
func (a *Adapter) actorUpdated(ctx context.Context, in *incoming) (string, error) {
	return outcomeOf(a.remote.expire(ctx, in.by.actor, in.by.keyID))
}

func outcomeOf(err error) (string, error) {
	if err != nil {
		return "", unavailable(err)
	}
	return outcomeDone, nil
}

func isGone(err error) bool { return errors.Is(err, errGone) }
