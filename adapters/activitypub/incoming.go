package activitypub

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// incoming is one activity with what was proven about it.
type incoming struct {
	agent    string // whose inbox; empty = the shared one
	body     []byte
	activity document.Object
	kind     string
	id       string
	actor    string
	by       proven
	dropped  string // why it became no message, though it was acknowledged
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
	in.wrap()
	return err
}

// wrap makes a Create of an object that was posted by itself, as small programs do (ActivityPub, section 6.2.1, lets clients do it).
// A proof inside the object is one of its author.
func (in *incoming) wrap() {
	note := in.activity
	if note == nil || note["object"] != nil || !document.IsA(note, spokenTypes...) {
		return
	}

	actor := note["actor"]
	if document.Reference(actor) == "" {
		actor = document.Author(note)
	}
	in.activity = document.Object{"type": "Create", "id": note["id"], "actor": actor, "object": note, "to": note["to"], "cc": note["cc"]}
	if note["proof"] != nil {
		in.activity["proof"] = note["proof"]
	}
}

// checkIdentity reads who claims to act and refuses claims that can never be true.
func (b *inbox) checkIdentity(in *incoming) error {
	in.kind, in.id, in.actor = document.TypeAmong(in.activity, knownTypes...), document.Text(in.activity, "id"), document.Reference(in.activity["actor"])
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

// checkSender answers those whom the operator excludes, before anything is fetched for them.
func (b *inbox) checkSender(in *incoming) error {
	if !b.admits(document.HostOf(in.actor)) || b.options.ActorAllowed != nil && !b.options.ActorAllowed(in.actor) {
		return errNotAdmitted
	}
	return nil
}

var countedTypes = map[string]bool{
	"Accept": true, "Add": true, "Announce": true, "AnnounceRequest": true, "Block": true, "Create": true, "Delete": true, "Dislike": true, "EmojiReact": true,
	"Flag": true, "Follow": true, "Like": true, "LikeRequest": true, "Move": true, "QuoteRequest": true, "Reject": true, "Remove": true, "ReplyRequest": true,
	"Undo": true, "Update": true, "View": true,
}

var knownTypes = slices.Sorted(maps.Keys(countedTypes))

// countedType bounds the label of the metric: types are the sender's to invent.
func countedType(kind string) string {
	if countedTypes[kind] {
		return kind
	}
	return "other"
}

// withoutID are the activities that small servers send without an id; actor, type and object name them well enough. Any
// other activity of a type that we act on needs one, or it could be taken twice.
var withoutID = map[string]bool{
	"Follow": true, "Like": true, "EmojiReact": true, "Dislike": true, "Undo": true, "Block": true, "Accept": true, "Reject": true,
}

// checkObject applies the checks for all types: what an actor makes, changes or
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

	if object := document.Embedded(in.activity["object"]); !document.IsBy(object, in.actor) {
		return fault.InField("object.attributedTo", "the object is by another actor")
	}
	return nil
}

const (
	doneNamespace = "activitypub.done"  // activityKey of an activity that took effect
	doneLife      = 30 * 24 * time.Hour // longer than any signature is good

	// maxProofAge is how old an object proof of such an activity may be. It is shorter than the memory of the activity, by more
	// than two clocks may differ, so that a captured one is never taken again after it was forgotten.
	maxProofAge = doneLife - 24*time.Hour
)

// checkProofAge keeps a captured activity from being brought again after doneLife, and a note from being brought as a request years
// after it was written: a proof inside it, unlike the signature of a request, has no end of its own.
func checkProofAge(proof signature.Proof, in *incoming, now time.Time) error {
	switch {
	case !onceOnly[in.kind] && in.kind != "Create":
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

	_, stands, err := b.options.State.Get(ctx, FollowerNamespace+agent.Name, in.actor)
	return !stands, err
}

// markDone remembers an activity that took effect. When this fails the peer sends the activity again, which does no harm.
func (b *inbox) markDone(ctx context.Context, in *incoming) error {
	if !onceOnly[in.kind] || in.id == "" {
		return nil
	}
	return b.options.State.Put(ctx, doneNamespace, activityKey(in.id, in.actor), []byte("1"), b.now().Add(doneLife))
}
