package activitypub

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// maxMarkBytes bounds a note that is kept until its Create comes.
const maxMarkBytes = 128 << 10

// noteUpdated stores the new version of a note that we have, or keeps it for the Create that is still on its way. An
// Update of a note that was never for us does nothing, and one of a poll is mostly a count of votes.
func (n *notes) noteUpdated(ctx context.Context, in *incoming) (string, error) {
	id := document.Reference(in.activity["object"])
	note, err := n.updatedNote(ctx, in, id)
	if err != nil || note == nil || document.IsA(note, "Question") {
		return outcomeIgnored, err
	}
	q, err := n.readNote(in.activity, note, in.actor)
	if err != nil || q == nil {
		return outcomeIgnored, err
	}
	q.decide(in.by.actor.Followers)
	key := q.note
	for range maxClaims {
		current, found, err := n.options.State.Get(ctx, noteNamespace, key)
		if err != nil {
			return "", unavailable(err)
		}
		if !found {
			outcome, done, err := n.markEdited(ctx, in, q, key)
			if err != nil || done {
				return outcome, err
			}
			continue
		}
		held, err := readHeld(current)
		switch {
		case err != nil:
			return "", err
		case held.Actor != in.actor && key == q.note:
			key = ownKeyOf(q.note, in.actor)
			continue
		case held.Actor != in.actor, held.Deleted, q.editedAt(n.now().UnixMilli()) < held.Updated:
			return outcomeIgnored, nil
		}
		outcome, done, err := n.edit(ctx, q, key, current, held)
		if err != nil || done {
			return outcome, err
		}
	}
	return "", unavailable(fmt.Errorf("note %s changes too often", document.Clip(q.note, 256)))
}

// updatedNote gives the embedded note. One that is only named is fetched, if it is one that we have.
func (n *notes) updatedNote(ctx context.Context, in *incoming, id string) (document.Object, error) {
	if note := document.Embedded(in.activity["object"]); len(note) > 2 {
		return note, nil
	}
	_, found, err := n.options.State.Get(ctx, noteNamespace, id)
	if err != nil {
		return nil, unavailable(err)
	}
	if !found || !document.SameOrigin(id, in.actor) {
		return nil, nil
	}
	note, err := n.fetcher.fetchExact(ctx, id)
	if err != nil {
		return nil, nil //nolint:nilerr // the next edit, or the deletion, tells the same
	}
	return note, nil
}

// editedAt is the version of an edit. One without a time of its own is as new as its arrival.
func (q *question) editedAt(arrived int64) int64 {
	if at, isTime := document.Time(q.object["updated"]); isTime {
		return at.UnixMilli()
	}
	return arrived
}

// markEdited keeps a new version for the Create that has not come. done is false when it came meanwhile.
func (n *notes) markEdited(ctx context.Context, in *incoming, q *question, key string) (outcome string, done bool, err error) {
	agents, err := n.addressed(ctx, in, q)
	if err != nil || len(agents) == 0 {
		return outcomeIgnored, true, err
	}
	mark, err := q.mark(n.now().UnixMilli())
	if err != nil || mark == nil {
		return outcomeIgnored, true, err
	}
	_, inserted, err := n.options.State.PutIfAbsent(ctx, noteNamespace, key, mark, n.now().Add(markLife))
	if err != nil {
		return "", true, unavailable(err)
	}
	return outcomeDone, inserted, nil
}

func (q *question) mark(arrived int64) ([]byte, error) {
	body, err := json.Marshal(q.object)
	if err != nil {
		return nil, fmt.Errorf("encode note: %w", err)
	}
	if len(body) > maxMarkBytes {
		return nil, nil
	}
	return heldNote{Actor: q.actor, Updated: q.editedAt(arrived), Object: body}.encode()
}

// edit changes what is there: the waiting version, or the messages of the note. done is false when somebody else was
// faster.
func (n *notes) edit(ctx context.Context, q *question, key string, current []byte, held heldNote) (outcome string, done bool, err error) {
	if held.Activity == "" {
		mark, err := q.mark(n.now().UnixMilli())
		if err != nil || mark == nil {
			return outcomeIgnored, true, err
		}
		swapped, err := n.options.State.Swap(ctx, noteNamespace, key, current, mark, n.now().Add(markLife))
		if err != nil {
			return "", true, unavailable(err)
		}
		return outcomeDone, swapped, nil
	}
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

// rewrite gives the parts of an edited note for one agent. A version that fewer people may read does not join a
// conversation that all may read.
func (n *notes) rewrite(q *question, recipient string, kept json.RawMessage) ([]normalized.Part, json.RawMessage) {
	address, err := identity.ParseAddress(recipient)
	if err != nil {
		return nil, kept
	}
	agent, found := n.options.Directory.Agent(address.Local)
	asked, err := readRoute(kept)
	if err != nil || !found || openly(asked.Visibility) && !openly(q.visibility) {
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
