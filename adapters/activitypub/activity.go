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

// follows keeps who follows and who blocks an agent.
type follows struct {
	*site
	keys     *keyring
	followed *cache[bool] // agent → whether anybody follows it
	blocking *cache[bool] // agent → whether anybody blocks it
}

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
func (b *inbox) dispatch(ctx context.Context, in *incoming) (outcome string, err error) {
	switch in.kind {
	case "Create":
		return b.notes.create(ctx, in)
	case "Follow":
		return b.follows.follow(ctx, in)
	case "Undo":
		return b.undo(ctx, in)
	case "Block":
		return b.follows.block(ctx, in)
	case "Like", "EmojiReact", "Dislike":
		return b.interactions.react(ctx, in)
	case "Announce":
		return b.announced(ctx, in)
	case "QuoteRequest":
		return b.interactions.quoteRequested(ctx, in)
	case "LikeRequest", "ReplyRequest", "AnnounceRequest":
		return b.interactions.interactionRequested(ctx, in)
	case "Flag":
		return b.interactions.flag(ctx, in)
	case "Move":
		return b.moves.moved(ctx, in)
	case "Delete":
		if in.aboutSelf("Delete") {
			return b.actorDeleted(ctx, in)
		}
		return b.notes.noteDeleted(ctx, in)
	case "Update":
		if in.aboutSelf("Update") {
			return b.actorUpdated(ctx, in)
		}
		return b.notes.noteUpdated(ctx, in)
	}
	return outcomeIgnored, nil
}

// follow stores the follower and sends Accept to their personal inbox. A repeated Follow is accepted again: the
// first Accept may have been lost.
func (f *follows) follow(ctx context.Context, in *incoming) (string, error) {
	agent, found := f.agentOf(document.Reference(in.activity["object"]))
	if !found {
		return outcomeIgnored, nil
	}
	actor := in.by.actor
	entry := follower{Follow: in.id, Inbox: actor.Inbox, SharedInbox: actor.SharedInbox, Since: f.now().UTC(), NoBot: actor.NoBot}
	if put, err := f.putOffFollow(ctx, agent.Name, actor, entry); put || err != nil {
		return outcomeOf(err)
	}
	if err := f.forgetFollowID(ctx, agent.Name, actor.ID, in.id); err != nil {
		return "", unavailable(err)
	}
	if err := f.putJSON(ctx, followerNamespace+agent.Name, actor.ID, entry); err != nil {
		return "", unavailable(err)
	}
	if in.id != "" {
		if err := f.putJSON(ctx, followNamespace, deedKey(in.id, actor.ID), followed{agent.Name, actor.ID}); err != nil {
			return "", unavailable(err)
		}
	}
	if err := f.answerFollow(ctx, agent.Name, "Accept", in.id, actor); err != nil {
		return "", unavailable(err)
	}
	return outcomeDone, nil
}

func (s *site) putJSON(ctx context.Context, namespace, key string, document any) error {
	value, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("encode %s: %w", namespace, err)
	}
	return s.options.State.Put(ctx, namespace, key, value, time.Time{})
}

// unfollow removes a follower and the way back from the id of the Follow.
func (f *follows) unfollow(ctx context.Context, agent, actor string) (string, error) {
	if err := f.forgetFollowID(ctx, agent, actor, ""); err != nil {
		return "", unavailable(err)
	}
	if err := f.options.State.Delete(ctx, PendingNamespace+agent, actor); err != nil {
		return "", unavailable(err)
	}
	return outcomeOf(f.options.State.Delete(ctx, followerNamespace+agent, actor))
}

// forgetFollowID removes the way back from the id of the Follow that stands, unless it is the given one: the ids are the
// sender's to invent, and one follower keeps one row.
func (f *follows) forgetFollowID(ctx context.Context, agent, actor, but string) error {
	value, found, err := f.options.State.Get(ctx, followerNamespace+agent, actor)
	var entry follower
	if err != nil || !found || json.Unmarshal(value, &entry) != nil || entry.Follow == "" || entry.Follow == but {
		return err
	}
	return f.options.State.Delete(ctx, followNamespace, deedKey(entry.Follow, actor))
}

// actorUpdated lets the next message fetch profile and key anew; of an actor who was fetched a moment ago the one after a
// pause, so that a storm of Updates costs few fetches and the last one still counts.
func (b *inbox) actorUpdated(ctx context.Context, in *incoming) (string, error) {
	return outcomeOf(b.actors.expire(ctx, in.by.actor, in.by.keyID))
}

func outcomeOf(err error) (string, error) {
	if err != nil {
		return "", unavailable(err)
	}
	return outcomeDone, nil
}

func isGone(err error) bool { return errors.Is(err, errGone) }
