package activitypub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	// noteNamespace has one document for every note that was received, changed or deleted: note IRI → noteRecord. It is
	// written in one transaction with the message, so that an edit or a deletion and the note may come in any order.
	noteNamespace = "activitypub.note"
	// noteURLNamespace finds a note by the address of its page, which people see: page → note IRI.
	noteURLNamespace = "activitypub.note.url"
	// markLife is how long an edit or a deletion waits for its note: longer than any server tries to deliver one.
	markLife = 14 * 24 * time.Hour
	// maxClaims bounds how often a document that changes meanwhile is looked at again.
	maxClaims = 6
)

// noteRecord is what became of one note.
type noteRecord struct {
	Actor    string `json:"actor"`
	Activity string `json:"activity,omitempty"` // the message's id; empty = the note has not come
	Open     bool   `json:"open,omitempty"`     // everyone could read it when it came
	Updated  int64  `json:"updated,omitempty"`  // milliseconds; of the version that we have
	Deleted  bool   `json:"deleted,omitempty"`

	// What earlier versions of this server wrote of an edit that came before its note, see newer.
	Brought bool            `json:"brought,omitempty"` // Object is not from a request of the author
	Object  json.RawMessage `json:"object,omitempty"`  // the newer version
}

func (h noteRecord) encode() ([]byte, error) {
	value, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode note: %w", err)
	}
	return value, nil
}

// expires returns what came before its note an end; what we have a message of stays with it.
func (h noteRecord) expires(now time.Time) time.Time {
	if h.Activity != "" {
		return time.Time{}
	}
	return now.Add(markLife)
}

func readNoteRecord(value []byte) (noteRecord, error) {
	var held noteRecord
	if err := json.Unmarshal(value, &held); err != nil {
		return held, unavailable(fmt.Errorf("decode note: %w", err))
	}
	return held, nil
}

// actorKey is the document's key for an actor whose note's IRI another actor on the same server used first.
func actorKey(note, actor string) string {
	sum := sha256.Sum256([]byte(note + "\n" + actor))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// version is when the note was written or last changed, as far as its author says so.
func (q *inboundNote) version() int64 {
	for _, name := range []string{"updated", "published"} {
		if at, isTime := document.Time(q.object[name]); isTime {
			return at.UnixMilli()
		}
	}
	return 0
}

// page is the address under which people see the note, where that is another one than its IRI.
func (q *inboundNote) page() string {
	for _, entry := range document.List(q.object["url"]) {
		href, isText := entry.(string)
		if link, isLink := entry.(document.Object); isLink {
			href, isText = document.Text(link, "href"), true
		}
		if isText && href != q.note && len(href) <= document.MaxIRIBytes && document.SameOrigin(href, q.note) {
			return href
		}
	}

	return ""
}

// ActivityOf finds the activity that brought a note by what an operator has of it: its IRI, or the address of its page. It is
// the id of the message.
func ActivityOf(ctx context.Context, state State, address string) (activity string, found bool, err error) {
	note, known, err := state.Get(ctx, noteURLNamespace, address)
	if err != nil {
		return "", false, fmt.Errorf("find note by its page: %w", err)
	}

	if known {
		address = string(note)
	}

	value, known, err := state.Get(ctx, noteNamespace, address)
	if err != nil || !known {
		return "", false, err
	}

	held, err := readNoteRecord(value)
	return held.Activity, held.Activity != "", err
}

// noteUpdated stores the new version of a note that we have. One that never came here and is for an agent now is a message like a new
// one: an edit added the mention, or overtook its Create, which then brings nothing new. An Update of a poll without a time of its own is
// a count of votes.
func (n *notes) noteUpdated(ctx context.Context, in *incoming) (string, error) {
	id := document.Reference(in.activity["object"])
	note, known, err := n.updatedNote(ctx, in, id)
	if err == nil && note == nil && !known && document.SameOrigin(id, in.actor) && (in.agent != "" || n.concerns(in.activity)) {
		return n.fetchLater(ctx, in)
	}
	if err != nil || note == nil {
		return outcomeIgnored, err
	}
	_, edited := document.Time(note["updated"])
	poll := document.IsA(note, "Question")
	if poll && !edited {
		return outcomeIgnored, nil
	}

	q, err := n.readNote(in.activity, note, in.actor)
	if err != nil || q == nil {
		return outcomeIgnored, err
	}

	q.activity, q.request = in.id, in.by.request
	q.decide(in.by.actor.Followers)
	key := q.note
	for range maxClaims {
		current, found, err := n.options.State.Get(ctx, noteNamespace, key)
		if err != nil {
			return "", unavailable(err)
		}
		if !found {
			return n.receiveByAll(ctx, in, q)
		}

		held, err := readNoteRecord(current)
		switch {
		case err != nil:
			return "", err
		case held.Actor != in.actor && key == q.note:
			key = actorKey(q.note, in.actor)
			continue
		case held.Actor != in.actor, held.Deleted, q.editedAt(n.now().UnixMilli()) < held.Updated, poll && held.Activity != "":
			return outcomeIgnored, nil
		case held.Activity == "":
			return n.receiveByAll(ctx, in, q)
		}

		outcome, done, err := n.edit(ctx, q, key, current, held)
		if err != nil || done {
			return outcome, err
		}
	}

	return "", unavailable(fmt.Errorf("note %s changes too often", clip.Bytes(q.note, 256)))
}

// updatedNote returns the embedded note. One that is only named is fetched, if it is one that we have; known is false if it is not.
func (n *notes) updatedNote(ctx context.Context, in *incoming, id string) (note document.Object, known bool, err error) {
	if note := document.Embedded(in.activity["object"]); len(note) > 2 {
		return note, true, nil
	}
	_, found, err := n.options.State.Get(ctx, noteNamespace, id)
	if err != nil {
		return nil, false, unavailable(err)
	}
	if !found || !document.SameOrigin(id, in.actor) {
		return nil, found, nil
	}

	got, err := n.fetcher.fetchExact(ctx, id, reading{as: n.addressee(in.agent, in.activity)})
	if err != nil {
		return nil, true, nil //nolint:nilerr // the next edit, or the deletion, tells the same
	}
	return got.doc, true, nil
}

// editedAt is the version of an edit. One without a time of its own is as new as its arrival.
func (q *inboundNote) editedAt(arrived int64) int64 {
	if at, isTime := document.Time(q.object["updated"]); isTime {
		return at.UnixMilli()
	}
	return arrived
}

// edit changes the messages of the note. done is false when another request was faster.
func (n *notes) edit(ctx context.Context, q *inboundNote, key string, current []byte, held noteRecord) (outcome string, done bool, err error) {
	held.Updated = q.editedAt(n.now().UnixMilli())
	value, err := held.encode()
	if err != nil {
		return "", true, err
	}

	err = n.options.Amender.Revise(ctx, exchange.Revision{
		MessageID: held.Activity, Principal: n.principal(q.actor),
		Rewrite: func(recipient string, kept json.RawMessage) ([]normalized.Part, json.RawMessage) {
			return n.rewrite(q, recipient, kept)
		},
		Claim: &exchange.Claim{Namespace: noteNamespace, Key: key, Value: value, Instead: current},
	})
	switch {
	case fault.Is(err, fault.Conflict):
		return "", false, nil
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Malformed), fault.Is(err, fault.TooLarge):
		return outcomeIgnored, true, nil
	}

	return outcomeDone, true, err
}

// rewrite returns the parts of an edited note for one agent. A version that fewer people may read does not join a
// conversation that all may read, and one that was not meant for the agent does not reach it.
func (n *notes) rewrite(q *inboundNote, recipient string, kept json.RawMessage) ([]normalized.Part, json.RawMessage) {
	address, err := identity.ParseAddress(recipient)
	if err != nil {
		return nil, kept
	}

	agent, found := n.options.Directory.Agent(address.Local)
	asked, err := readRoute(kept)
	if err != nil || !found || n.addressedBy(q, agent) == "" || isOpen(asked.Visibility) && !isOpen(q.visibility) {
		return nil, kept
	}

	asked.Visibility = narrower(asked.Visibility, q.visibility)
	asked.Warning, asked.Language = q.warning(), q.language()
	asked.Sensitive, _ = q.object["sensitive"].(bool)
	route, err := json.Marshal(asked)
	if err != nil {
		return nil, kept
	}
	return n.parts(q, agent), route
}

// noteDeleted takes a note back: its messages are erased and a run that works on them stops. Only the stored author may.
// A note that has not come yet is marked, so that it is not answered when it does.
func (n *notes) noteDeleted(ctx context.Context, in *incoming) (string, error) {
	note := document.Reference(in.activity["object"])
	if !document.SameOrigin(note, in.actor) {
		return outcomeIgnored, nil
	}

	mark, err := noteRecord{Actor: in.actor, Deleted: true}.encode()
	if err != nil {
		return "", err
	}

	key := note
	for range maxClaims {
		current, inserted, err := n.options.State.PutIfAbsent(ctx, noteNamespace, key, mark, n.now().Add(markLife))
		if err != nil {
			return "", unavailable(err)
		}
		if inserted {
			return outcomeDone, nil
		}

		held, err := readNoteRecord(current)
		switch {
		case err != nil:
			return "", err
		case held.Actor != in.actor && key == note:
			key = actorKey(note, in.actor)
			continue
		case held.Actor != in.actor:
			return outcomeIgnored, nil
		}

		outcome, done, err := n.markDeleted(ctx, key, current, held)
		if err != nil || done {
			return outcome, err
		}
	}

	return "", unavailable(fmt.Errorf("note %s changes too often", clip.Bytes(note, 256)))
}

// markDeleted marks the note first: should the second step be lost, the peer that heard no success repeats both.
func (n *notes) markDeleted(ctx context.Context, key string, current []byte, held noteRecord) (outcome string, done bool, err error) {
	if !held.Deleted {
		held.Deleted, held.Object = true, nil
		mark, err := held.encode()
		if err != nil {
			return "", true, err
		}

		swapped, err := n.options.State.Swap(ctx, noteNamespace, key, current, mark, held.expires(n.now()))
		if err != nil {
			return "", true, unavailable(err)
		}
		if !swapped {
			return "", false, nil
		}
	}

	if held.Activity == "" {
		return outcomeDone, true, nil
	}
	err = n.options.Amender.Remove(ctx, "", held.Activity, n.principal(held.Actor))
	if err != nil && !fault.Is(err, fault.NotFound) {
		return "", true, err
	}
	return outcomeDone, true, nil
}

// IDsIn returns the ids of the server that stand in one of our addresses: of the answer in that of a post, of its activities and of a
// like, and of the turn in that of a conversation. The host is not looked at. Both are empty for other addresses.
func IDsIn(address string) (turn, reply string) {
	for _, way := range []struct {
		mark string
		id   *string
	}{{"/o/", &reply}, {"#likes/", &reply}, {"/contexts/", &turn}} {
		_, rest, found := strings.Cut(address, way.mark)
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			rest = rest[:end]
		}
		if found && uuid.Validate(rest) == nil {
			*way.id = rest
			return turn, reply
		}
	}
	return "", ""
}
