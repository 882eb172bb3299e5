package activitypub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

const (
	// noteNamespace has one document for every note that was received, changed or deleted: note IRI → heldNote. It is
	// written in one transaction with the message, so that an edit or a deletion and the note may come in any order.
	noteNamespace = "activitypub.note"
	// noteURLNamespace finds a note by the address of its page, which people see: page → note IRI.
	noteURLNamespace = "activitypub.note.url"
	// markLife is how long an edit or a deletion waits for its note: longer than any server tries to deliver one.
	markLife = 14 * 24 * time.Hour
	// maxClaims bounds how often a document that changes meanwhile is looked at again.
	maxClaims = 6
)

// heldNote is what became of one note.
type heldNote struct {
	Actor    string          `json:"actor"`
	Activity string          `json:"activity,omitempty"` // the message's id; empty = the note has not come
	Open     bool            `json:"open,omitempty"`     // everybody could read it when it came
	Updated  int64           `json:"updated,omitempty"`  // milliseconds; of the version that we have
	Deleted  bool            `json:"deleted,omitempty"`
	Object   json.RawMessage `json:"object,omitempty"` // the newer version of a note that has not come
}

func (h heldNote) encode() ([]byte, error) {
	value, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode note: %w", err)
	}
	return value, nil
}

// expires gives what came before its note an end; what we have a message of stays with it.
func (h heldNote) expires(now time.Time) time.Time {
	if h.Activity != "" {
		return time.Time{}
	}
	return now.Add(markLife)
}

func readHeld(value []byte) (heldNote, error) {
	var held heldNote
	if err := json.Unmarshal(value, &held); err != nil {
		return held, unavailable(fmt.Errorf("decode note: %w", err))
	}
	return held, nil
}

// ownKeyOf is the document's key for an actor whose note's IRI somebody else on the same server used first.
func ownKeyOf(note, actor string) string {
	sum := sha256.Sum256([]byte(note + "\n" + actor))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// principal is what the engine knows an actor by, whatever proved it.
func (s *site) principal(actor string) string { return s.options.Domain + " " + actor }

// version is when the note was written or last changed, as far as its author says so.
func (q *question) version() int64 {
	for _, name := range []string{"updated", "published"} {
		if at, isTime := document.Time(q.object[name]); isTime {
			return at.UnixMilli()
		}
	}
	return 0
}

// page is the address under which people see the note, where that is another one than its IRI.
func (q *question) page() string {
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
	held, err := readHeld(value)
	return held.Activity, held.Activity != "", err
}

// receive hands a message to the engine together with the document about its note.
func (n *notes) receive(ctx context.Context, in *incoming, q *question, agent exchange.AgentProfile) (string, error) {
	held := heldNote{Actor: q.actor, Activity: q.activity, Open: openly(q.visibility), Updated: q.version()}
	value, err := held.encode()
	if err != nil {
		return "", err
	}
	claim := &exchange.Claim{Namespace: noteNamespace, Key: q.note, Value: value, AliasNamespace: noteURLNamespace, Alias: q.page()}
	for range maxClaims {
		message, err := n.normalize(ctx, in, q, agent)
		if err != nil || message == nil {
			return outcomeIgnored, err
		}
		message.Message.ID, message.Claim = q.activity, claim
		receipt, err := n.options.Receiver.Receive(ctx, *message)
		switch {
		case fault.Is(err, fault.Forbidden):
			return outcomeIgnored, nil // a blocked sender hears 202 (message contract, section 12)
		case err != nil:
			return "", err
		case receipt.Claimed == nil && !receipt.New:
			return outcomeDuplicate, nil
		case receipt.Claimed == nil:
			return outcomeAccepted, nil
		}
		if q, claim, err = n.yield(q, claim, receipt.Claimed); err != nil || q == nil {
			return outcomeIgnored, err
		}
	}
	return "", unavailable(fmt.Errorf("note %s changes too often", document.Clip(q.note, 256)))
}

// yield makes of a note what the document that is there already says; nil = it is not taken.
func (n *notes) yield(q *question, claim *exchange.Claim, current []byte) (*question, *exchange.Claim, error) {
	held, err := readHeld(current)
	next := &exchange.Claim{
		Namespace: claim.Namespace, Key: claim.Key, Value: current, AliasNamespace: claim.AliasNamespace, Alias: claim.Alias,
	}
	switch {
	case err != nil:
		return nil, nil, err
	case held.Actor != q.actor && claim.Key == q.note:
		next.Key, next.Value = ownKeyOf(q.note, q.actor), claim.Value
		return q, next, nil
	case held.Actor != q.actor, held.Deleted:
		return nil, nil, nil
	case held.Activity != "": // the same note in another Create, or edited since
		same := *q
		same.activity = held.Activity
		return &same, next, nil
	}
	newer, err := n.newer(q, held)
	if err != nil {
		return nil, nil, err
	}
	held.Activity, held.Object, held.Open = q.activity, nil, newer != nil && openly(newer.visibility)
	next.Value, err = held.encode()
	next.Instead = bytes.Clone(current)
	return newer, next, err
}

// newer gives the question with the version of its note that came before it.
func (n *notes) newer(q *question, held heldNote) (*question, error) {
	if held.Updated < q.version() {
		return q, nil
	}
	note, err := document.Parse(held.Object)
	if err != nil {
		return nil, unavailable(err)
	}
	changed, err := n.readNote(note, note, q.actor)
	if err != nil || changed == nil {
		return q, err
	}
	changed.decide(q.followers)
	changed.activity, changed.visibility = q.activity, narrower(q.visibility, changed.visibility)
	return changed, nil
}

// narrower gives the one of two visibilities that fewer people have.
func narrower(a, b string) string {
	if width[b] < width[a] {
		return b
	}
	return a
}
