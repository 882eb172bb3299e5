package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/internal/clip"
	"inbox/internal/fault"
)

// type: the activity types in countedTypes, or other. outcome: accepted, duplicate, done, ignored, refused, failed
var activities = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_activities_total", Help: "Activities that arrived at an inbox, by type and outcome.",
}, []string{"type", "outcome"})

// inbox takes activities: who acts is proven, then each goes to the part that its type concerns.
type inbox struct {
	*site
	fetcher      *fetcher
	actors       *actors
	verifier     *verifier
	follows      *follows
	interactions *interactions
	notes        *notes
	moves        *moves
	dropRecords  *counter // by host
}

// Outcomes of an activity that was answered with 202.
const (
	outcomeAccepted  = "accepted"  // became a message
	outcomeDuplicate = "duplicate" // the same message was accepted before
	outcomeDone      = "done"      // a follow, a block and the like took effect
	outcomeIgnored   = "ignored"   // acknowledged without effect
)

func (b *inbox) serveSharedInbox(w http.ResponseWriter, r *http.Request) { b.serveInbox(w, r, "") }

func (b *inbox) serveAgentInbox(w http.ResponseWriter, r *http.Request) {
	agent, found := b.requestedAgent(w, r)
	if !found {
		return
	}
	b.serveInbox(w, r, agent.Name)
}

// serveInbox answers 202 only after everything that the activity asks for is stored. The agent never runs in here.
func (b *inbox) serveInbox(w http.ResponseWriter, r *http.Request, agent string) {
	in, outcome, err := b.process(w, r, agent)
	if err != nil {
		activities.WithLabelValues(countedType(in.kind), refusalOutcome(err)).Inc()
		slog.DebugContext(r.Context(), "activity refused", "type", clip.Bytes(in.kind, 64), "actor", clip.Bytes(in.actor, 256), "error", err)
		if fault.Is(err, fault.Unauthenticated) {
			b.offerSignatures(w, r)
		}

		b.verifier.countRefusal(r, err)
		refuse(w, r, err)
		return
	}

	activities.WithLabelValues(countedType(in.kind), outcome).Inc()
	if outcome == outcomeIgnored {
		b.countDropped(r.Context(), &in)
	}
	w.WriteHeader(http.StatusAccepted)
}

func refusalOutcome(err error) string {
	if kind := fault.Of(err).Kind; kind == fault.Internal || kind == fault.Unavailable {
		return "failed"
	}
	return "refused"
}

// process goes through the steps of an inbox in their order, for clients that were not refused
// too often: type, size, syntax, the cheap answers, the signature, and only then the activity itself.
func (b *inbox) process(w http.ResponseWriter, r *http.Request, agent string) (incoming, string, error) {
	in := incoming{agent: agent}
	if err := b.verifier.checkFlood(r); err != nil {
		return in, "", err
	}
	if err := in.read(w, r); err != nil {
		return in, "", err
	}
	if err := b.checkIdentity(&in); err != nil {
		return in, "", err
	}
	if err := b.checkSender(&in); err != nil {
		return in, "", err
	}

	if in.aboutSelf("Delete") || in.aboutSelf("Update") {
		known, err := b.actors.knows(r.Context(), in.actor)
		if err != nil {
			return in, "", unavailable(err)
		}
		if !known { // Mastodon tells every server of every deleted account, and the key is already gone
			return in, outcomeIgnored, nil
		}
	}

	err := b.checkObject(&in)
	if err != nil {
		return in, "", err
	}
	if in.by, err = b.verifier.authenticate(r, &in); err != nil {
		return b.refusedDelete(r.Context(), in, err)
	}

	b.verifier.reportAlive(r.Context(), in.by)
	outcome, err := b.processOnce(r.Context(), &in)
	return in, outcome, err
}

// processOnce does what the activity asks for, unless it did before.
func (b *inbox) processOnce(ctx context.Context, in *incoming) (string, error) {
	repeated, err := b.alreadyDone(ctx, in)
	if err != nil {
		return "", unavailable(err)
	}
	if repeated {
		return outcomeDuplicate, nil
	}

	outcome, err := b.dispatch(ctx, in)
	if err != nil || outcome != outcomeDone {
		return outcome, err
	}
	if err := b.markDone(ctx, in); err != nil {
		return "", unavailable(err)
	}
	return outcome, nil
}

// refusedDelete looks once more at a Delete of an actor whose key cannot be had: where the actor's own server says
// that the actor is gone, the Delete is true, no matter who brought it.
func (b *inbox) refusedDelete(ctx context.Context, in incoming, refusal error) (incoming, string, error) {
	if !in.aboutSelf("Delete") || !isGone(refusal) {
		return in, "", refusal
	}
	if _, found := b.actors.failed.get(in.actor, b.now()); found {
		return in, "", refusal
	}

	b.actors.failed.put(in.actor, refusal, b.now().Add(failureLife))
	if _, err := b.fetcher.isDeleted(ctx, in.actor, reading{}); err != nil {
		return in, "", refusal
	}

	outcome, err := b.actorDeleted(ctx, &in)
	return in, outcome, err
}

// dispatch hands an authenticated activity to the part that its type and its object concern. All of them return an outcome.
func (b *inbox) dispatch(ctx context.Context, in *incoming) (outcome string, err error) {
	object := document.Embedded(in.activity["object"])

	switch in.kind {
	case "Create":
		return b.notes.create(ctx, in)
	case "Update":
		if in.aboutSelf("Update") {
			return b.actorUpdated(ctx, in)
		}
		return b.notes.noteUpdated(ctx, in)
	case "Delete":
		if in.aboutSelf("Delete") {
			return b.actorDeleted(ctx, in)
		}
		return b.notes.noteDeleted(ctx, in)

	case "Follow":
		return b.follows.follow(ctx, in)
	case "Block":
		return b.follows.block(ctx, in)
	case "Undo":
		return b.undo(ctx, in) // of a Follow, a Block or a reaction
	case "Move":
		return b.moves.moved(ctx, in)

	case "Like", "EmojiReact", "Dislike":
		return b.interactions.react(ctx, in)
	case "Announce":
		if document.IsA(object, "Create") && in.by.actor.Type == "Group" {
			return b.createShared(ctx, in, object)
		}
		return b.interactions.react(ctx, in)
	case "QuoteRequest":
		return b.interactions.quoteRequested(ctx, in)
	case "LikeRequest", "ReplyRequest", "AnnounceRequest":
		return b.interactions.interactionRequested(ctx, in)
	case "Flag":
		return b.interactions.flag(ctx, in)

	case "Accept", "Add", "Reject", "Remove", "View":
		return outcomeIgnored, nil // common, and nothing to an agent: it follows no one and keeps no timeline
	default:
		return outcomeIgnored, nil // acknowledged, and counted as type "other"
	}
}

func outcomeOf(err error) (string, error) {
	if err != nil {
		return "", unavailable(err)
	}
	return outcomeDone, nil
}

func isGone(err error) bool { return errors.Is(err, errGone) }

// undo takes back what the same actor did before. The inner activity may be given by its id alone; what we do not know
// is acknowledged.
func (b *inbox) undo(ctx context.Context, in *incoming) (string, error) {
	inner := document.Embedded(in.activity["object"])
	if inner == nil {
		return b.undoByID(ctx, in, document.Reference(in.activity["object"]))
	}
	if actor := document.Reference(inner["actor"]); actor != "" && actor != in.actor {
		return "", fault.InField("object.actor", "only the actor of an activity can undo it")
	}

	agent, found := b.agentOf(document.Reference(inner["object"]))
	switch {
	case document.IsA(inner, reactionTypes...):
		return b.interactions.unreact(ctx, in, inner, document.Text(inner, "id"))
	case !found:
		return b.undoByID(ctx, in, document.Text(inner, "id"))
	case document.IsA(inner, "Follow"):
		if late, err := b.replaced(ctx, in.actor, document.Text(inner, "id"), FollowerNamespace+agent.Name, PendingNamespace+agent.Name); late || err != nil {
			return outcomeIgnored, err
		}
		return b.follows.unfollow(ctx, agent.Name, in.actor)
	case document.IsA(inner, "Block"):
		if late, err := b.replaced(ctx, in.actor, document.Text(inner, "id"), blockNamespace+agent.Name); late || err != nil {
			return outcomeIgnored, err
		}
		return outcomeOf(b.follows.unblock(ctx, agent.Name, in.actor))
	}

	return outcomeIgnored, nil
}

// replaced reports whether an activity that is undone took effect here and a newer one of the same actor stands in its place: the Undo is
// late, or its deliveries changed places. An id that never came here is no such activity: some servers make up a new one for the Undo.
func (b *inbox) replaced(ctx context.Context, actor, id string, namespaces ...string) (bool, error) {
	if id == "" {
		return false, nil
	}
	for _, namespace := range namespaces {
		value, found, err := b.options.State.Get(ctx, namespace, actor)
		if err != nil {
			return false, unavailable(err)
		}
		if !found || standing(value) == id || standing(value) == "" {
			continue
		}

		_, done, err := b.options.State.Get(ctx, doneNamespace, activityKey(id, actor))
		if err != nil {
			return false, unavailable(err)
		}
		return done, nil
	}
	return false, nil
}

// standing is the id of the Follow or the Block that a row is about.
func standing(row []byte) string {
	var id string
	if json.Unmarshal(row, &id) == nil {
		return id
	}
	var entry follower
	_ = json.Unmarshal(row, &entry) // a row of another form names no id
	return entry.Follow
}

func (b *inbox) undoByID(ctx context.Context, in *incoming, id string) (string, error) {
	if id == "" {
		return outcomeIgnored, nil
	}
	if follow, found, err := b.recordedFollow(ctx, followNamespace, id, in.actor); err != nil {
		return "", err
	} else if found {
		return b.follows.unfollow(ctx, follow.Agent, in.actor)
	}

	if block, found, err := b.recordedFollow(ctx, blockIDNamespace, id, in.actor); err != nil {
		return "", err
	} else if found {
		return outcomeOf(b.follows.unblock(ctx, block.Agent, in.actor))
	}
	return b.interactions.unreact(ctx, in, nil, id)
}

// activityKey is the key of an activity that can be undone. The actor is part of it, so that no actor can use up or
// overwrite the id of another one on the same server. What is too long for a key is hashed.
func activityKey(id, actor string) string {
	if len(actor)+1+len(id) > document.MaxIRIBytes {
		return actorKey(id, actor)
	}
	return actor + " " + id
}

// recorded returns the document of an activity that can be undone; older ones stand under the id alone.
func (s *site) recorded(ctx context.Context, namespace, id, actor string) (value []byte, found bool, err error) {
	value, found, err = s.options.State.Get(ctx, namespace, activityKey(id, actor))
	if err != nil || found {
		return value, found, err
	}
	return s.options.State.Get(ctx, namespace, id)
}

// recordedFollow finds what the actor did to an agent by the id of the activity.
func (b *inbox) recordedFollow(ctx context.Context, namespace, id, actor string) (deed followed, found bool, err error) {
	value, found, err := b.recorded(ctx, namespace, id, actor)
	if err != nil {
		return deed, false, unavailable(err)
	}
	return deed, found && json.Unmarshal(value, &deed) == nil && deed.Actor == actor, nil
}

// createShared takes a Create that a group shares with its members, as Lemmy does. Of one that is for us everything but the
// object's id is asked at its own server.
func (b *inbox) createShared(ctx context.Context, in *incoming, create document.Object) (string, error) {
	wrapped := &incoming{agent: in.agent, activity: create}
	if b.checkIdentity(wrapped) != nil || b.checkObject(wrapped) != nil || !b.admits(document.HostOf(wrapped.actor)) || !b.notes.concerns(create) {
		return outcomeIgnored, nil //nolint:nilerr // a share that is none is acknowledged like any other
	}

	var err error
	switch wrapped.by, err = b.verifier.confirm(ctx, wrapped, in.by); {
	case fault.Is(err, fault.Unavailable):
		return "", err
	case err != nil:
		return outcomeIgnored, nil //nolint:nilerr // the author's server does not confirm it: nothing is believed
	}
	return b.notes.create(ctx, wrapped)
}

// actorUpdated lets the next message fetch profile and key anew; of an actor who was fetched a moment ago the one after a
// pause, so that a storm of Updates costs few fetches and the last one still counts.
func (b *inbox) actorUpdated(ctx context.Context, in *incoming) (string, error) {
	return outcomeOf(b.actors.expire(ctx, in.by.actor, in.by.keyID))
}

const reasonAccountDeleted = "the sender's account was deleted"

// actorDeleted forgets an account that its server deleted, and stops what its messages had begun.
func (b *inbox) actorDeleted(ctx context.Context, in *incoming) (string, error) {
	for _, agent := range b.options.Directory.Agents() {
		if _, err := b.follows.unfollow(ctx, agent.Name, in.actor); err != nil {
			return "", err
		}
		if err := b.follows.unblock(ctx, agent.Name, in.actor); err != nil {
			return "", unavailable(err)
		}
	}

	if err := b.options.Amender.CancelOpen(ctx, "", b.principal(in.actor), reasonAccountDeleted); err != nil {
		return "", err
	}
	if err := b.options.Amender.EndLinks(ctx, b.principal(in.actor), reasonAccountDeleted); err != nil {
		return "", err
	}
	keyID := in.by.keyID
	if keyID == "" || in.by.relay != "" {
		keyID = in.actor + "#main-key"
	}
	return outcomeOf(b.actors.forget(ctx, in.actor, keyID))
}
