package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
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
	agent, found := b.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !found {
		refuse(w, r, b.noAgent(r.Context(), httpserver.Param(r, "agent")))
		return
	}
	b.serveInbox(w, r, agent.Name)
}

// serveInbox answers 202 only after everything that the activity asks for is stored. The agent never runs in here.
func (b *inbox) serveInbox(w http.ResponseWriter, r *http.Request, agent string) {
	in, outcome, err := b.process(w, r, agent)
	if err != nil {
		activities.WithLabelValues(countedType(in.kind), refusalOutcome(err)).Inc()
		slog.DebugContext(r.Context(), "activity refused", "type", document.Clip(in.kind, 64), "actor", document.Clip(in.actor, 256), "error", err)
		if fault.Is(err, fault.Unauthenticated) {
			b.offerSignatures(w, r)
		}
		b.verifier.countRefusal(r, err)
		refuse(w, r, err)
		return
	}
	activities.WithLabelValues(countedType(in.kind), outcome).Inc()
	w.WriteHeader(http.StatusAccepted)
}

func refusalOutcome(err error) string {
	if kind := fault.Of(err).Kind; kind == fault.Internal || kind == fault.Unavailable {
		return "failed"
	}
	return "refused"
}

// process goes through the steps of section 4.1 of the ActivityPub reference in their order, for clients that were not refused
// too often: type, size, syntax, the
// cheap answers, the signature, and only then the activity itself.
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

// checkSender answers those whom the operator excludes, before anything is fetched for them.
func (b *inbox) checkSender(in *incoming) error {
	if !b.admits(document.HostOf(in.actor)) || b.options.ActorAllowed != nil && !b.options.ActorAllowed(in.actor) {
		return errNotAdmitted
	}
	return nil
}

// incoming is one activity with what was proven about it.
type incoming struct {
	agent    string // whose inbox; empty = the shared one
	body     []byte
	activity document.Object
	kind     string
	id       string
	actor    string
	by       proven
}

func (in *incoming) read(w http.ResponseWriter, r *http.Request) error {
	if !document.IsActivityType(r.Header.Get("Content-Type"), false) { // what is taken instead: RFC 9110, section 15.5.16
		w.Header().Set("Accept", acceptActivity)
		return fault.New(fault.Unsupported, "want content type application/activity+json")
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		w.Header().Set("Accept-Encoding", "identity")
		return fault.New(fault.Unsupported, "compressed activities are not accepted")
	}
	var err error
	switch in.body, err = httpserver.ReadBody(r, document.MaxBytes); {
	case fault.Is(err, fault.TooLarge):
		return fault.New(fault.TooLarge, "activity is over 1 MiB")
	case err != nil:
		return err
	}
	in.activity, err = document.Parse(in.body)
	return err
}

// checkIdentity reads who claims to act and refuses claims that can never be true.
func (b *inbox) checkIdentity(in *incoming) error {
	in.kind, in.id, in.actor = document.Type(in.activity), document.Text(in.activity, "id"), document.Reference(in.activity["actor"])
	if in.kind == "" {
		return fault.InField("type", "the activity has no type")
	}
	if _, ok := document.Origin(in.actor); !ok {
		return fault.InField("actor", "the activity names no actor")
	}
	if b.isOurs(in.actor) {
		return fault.InField("actor", "an actor of this server cannot come from outside")
	}
	if in.id != "" && !document.SameOrigin(in.id, in.actor) {
		return fault.InField("id", "activity and actor are on different servers")
	}
	if !b.isRemote(in.actor) {
		return fault.InField("actor", "want an https address")
	}
	return nil
}

// aboutSelf reports whether an activity of the kind has its own actor as object.
func (in *incoming) aboutSelf(kind string) bool {
	return in.kind == kind && document.Reference(in.activity["object"]) == in.actor
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
	if _, err := b.fetcher.isDeleted(ctx, in.actor); err != nil {
		return in, "", refusal
	}
	outcome, err := b.actorDeleted(ctx, &in)
	return in, outcome, err
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

func outcomeOf(err error) (string, error) {
	if err != nil {
		return "", unavailable(err)
	}
	return outcomeDone, nil
}

func isGone(err error) bool { return errors.Is(err, errGone) }

// withoutID are the activities that small servers send without an id; actor, type and object name them well enough. Any
// other activity of a type that we act on needs one, or it could be taken twice.
var withoutID = map[string]bool{
	"Follow": true, "Like": true, "EmojiReact": true, "Dislike": true, "Undo": true, "Block": true, "Accept": true, "Reject": true,
}

// checkObject applies the checks for all types of section 5.1 of the ActivityPub reference: what an actor makes, changes or
// deletes is on the actor's own server and by that actor.
func (b *inbox) checkObject(in *incoming) error {
	if in.id == "" && countedTypes[in.kind] && !withoutID[in.kind] {
		return fault.InField("id", "an activity of type "+in.kind+" needs an id")
	}
	switch in.kind {
	case "Create", "Update", "Delete":
	default:
		return nil
	}
	id := document.Reference(in.activity["object"])
	switch {
	case id == "":
		return fault.InField("object.id", "the object needs an id")
	case b.isOurs(id):
		return fault.InField("object.id", "an object of this server cannot come from outside")
	case !document.SameOrigin(id, in.actor) && in.kind == "Create":
		return nil // what it embeds is not read: only that object's own server can speak for it
	case !document.SameOrigin(id, in.actor):
		return fault.InField("object.id", "object and actor are on different servers")
	}
	if author := document.Reference(document.Embedded(in.activity["object"])["attributedTo"]); author != "" && author != in.actor {
		return fault.InField("object.attributedTo", "the object is by another actor")
	}
	return nil
}

const (
	doneNamespace = "activitypub.done"  // deedKey of an activity that took effect
	doneLife      = 30 * 24 * time.Hour // longer than any signature is good

	// maxProofAge is how old an object proof of such an activity may be. It is shorter than the memory of the activity, by more
	// than two clocks may differ, so that a captured one is never taken again after it was forgotten.
	maxProofAge = doneLife - 24*time.Hour
)

// checkProofAge keeps a captured activity from being brought again after doneLife: a proof inside it, unlike the signature of
// a request, has no end of its own.
func checkProofAge(proof signature.Proof, in *incoming, now time.Time) error {
	switch {
	case !onceOnly[in.kind]:
		return nil
	case in.id == "":
		return errors.New("an activity of this type that is proven by an object proof alone needs an id")
	case proof.Created.IsZero():
		return errors.New("the proof of an activity of this type must say when it was created")
	case now.Sub(proof.Created) > maxProofAge:
		return errors.New("the proof is too old for an activity of this type")
	}
	return nil
}

// onceOnly are the activities whose repetition would undo what came after them. A new note is recognised by its message,
// and the rest changes nothing when it comes again.
var onceOnly = map[string]bool{
	"Follow": true, "Undo": true, "Block": true, "Accept": true, "Reject": true, "Move": true, "Flag": true,
}

// alreadyDone reports whether the activity took effect before. A Follow that still stands may come again: our Accept may have
// been lost.
func (b *inbox) alreadyDone(ctx context.Context, in *incoming) (bool, error) {
	if !onceOnly[in.kind] || in.id == "" {
		return false, nil
	}
	_, done, err := b.options.State.Get(ctx, doneNamespace, activityKey(in.id, in.actor))
	if err != nil || !done || in.kind != "Follow" {
		return done, err
	}
	agent, found := b.agentOf(document.Reference(in.activity["object"]))
	if !found {
		return true, nil
	}
	_, stands, err := b.options.State.Get(ctx, followerNamespace+agent.Name, in.actor)
	return !stands, err
}

// markDone remembers an activity that took effect. When this fails the peer sends the activity again, which does no harm.
func (b *inbox) markDone(ctx context.Context, in *incoming) error {
	if !onceOnly[in.kind] || in.id == "" {
		return nil
	}
	return b.options.State.Put(ctx, doneNamespace, activityKey(in.id, in.actor), []byte("1"), b.now().Add(doneLife))
}

const blockIDNamespace = "activitypub.blockid" // deedKey of the Block → followed

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
		return b.follows.unfollow(ctx, agent.Name, in.actor)
	case document.IsA(inner, "Block"):
		return outcomeOf(b.follows.unblock(ctx, agent.Name, in.actor))
	}
	return outcomeIgnored, nil
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

// announced takes what a group shares with its members. A share of one of our notes is a reaction; group servers such as
// Lemmy share whole activities, and of one that is for us everything but the object's id is asked at its own server.
func (b *inbox) announced(ctx context.Context, in *incoming) (string, error) {
	inner := document.Embedded(in.activity["object"])
	if !document.IsA(inner, "Create") || in.by.actor.Type != "Group" {
		return b.interactions.react(ctx, in)
	}
	wrapped := &incoming{agent: in.agent, activity: inner}
	if b.checkIdentity(wrapped) != nil || b.checkObject(wrapped) != nil || !b.admits(document.HostOf(wrapped.actor)) || !b.notes.concerns(inner) {
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
	keyID := in.by.keyID
	if keyID == "" || in.by.relay != "" {
		keyID = in.actor + "#main-key"
	}
	return outcomeOf(b.actors.forget(ctx, in.actor, keyID))
}

// reportAlive tells of a host that sent something with a good signature: it lives.
func (v *verifier) reportAlive(ctx context.Context, by proven) {
	if v.options.Alive != nil && by.actor != nil && by.relay == "" {
		v.options.Alive(ctx, document.HostOf(by.actor.ID))
	}
}
