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
func (a *Adapter) noteUpdated(ctx context.Context, in *incoming) (string, error) {
	id := document.Reference(in.activity["object"])
	note, err := a.updatedNote(ctx, in, id)
	if err != nil || note == nil || document.IsA(note, "Question") {
		return outcomeIgnored, err
	}
	q, err := a.readNote(in.activity, note, in.actor)
	if err != nil || q == nil {
		return outcomeIgnored, err
	}
	q.decide(in.by.actor.Followers)
	key := q.note
	for range maxClaims {
		current, found, err := a.options.State.Get(ctx, noteNamespace, key)
		if err != nil {
			return "", unavailable(err)
		}
		if !found {
			outcome, done, err := a.markEdited(ctx, in, q, key)
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
		case held.Actor != in.actor, held.Deleted, q.editedAt(a.now().UnixMilli()) < held.Updated:
			return outcomeIgnored, nil
		}
		outcome, done, err := a.edit(ctx, q, key, current, held)
		if err != nil || done {
			return outcome, err
		}
	}
	return "", unavailable(fmt.Errorf("note %s changes too often", document.Clip(q.note, 256)))
}

// updatedNote gives the embedded note. One that is only named is fetched, if it is one that we have.
func (a *Adapter) updatedNote(ctx context.Context, in *incoming, id string) (document.Object, error) {
	if note := document.Embedded(in.activity["object"]); len(note) > 2 {
		return note, nil
	}
	_, found, err := a.options.State.Get(ctx, noteNamespace, id)
	if err != nil {
		return nil, unavailable(err)
	}
	if !found || !document.SameOrigin(id, in.actor) {
		return nil, nil
	}
	note, err := a.fetchExact(ctx, id)
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
func (a *Adapter) markEdited(ctx context.Context, in *incoming, q *question, key string) (outcome string, done bool, err error) {
	agents, err := a.addressed(ctx, in, q)
	if err != nil || len(agents) == 0 {
		return outcomeIgnored, true, err
	}
	mark, err := q.mark(a.now().UnixMilli())
	if err != nil || mark == nil {
		return outcomeIgnored, true, err
	}
	_, inserted, err := a.options.State.PutIfAbsent(ctx, noteNamespace, key, mark, a.now().Add(markLife))
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
func (a *Adapter) edit(ctx context.Context, q *question, key string, current []byte, held heldNote) (outcome string, done bool, err error) {
	if held.Activity == "" {
		mark, err := q.mark(a.now().UnixMilli())
		if err != nil || mark == nil {
			return outcomeIgnored, true, err
		}
		swapped, err := a.options.State.Swap(ctx, noteNamespace, key, current, mark, a.now().Add(markLife))
		if err != nil {
			return "", true, unavailable(err)
		}
		return outcomeDone, swapped, nil
	}
	held.Updated = q.editedAt(a.now().UnixMilli())
	value, err := held.encode()
	if err != nil {
		return "", true, err
	}
	err = a.options.Amender.Revise(ctx, exchange.Revision{
		MessageID: held.Activity, Principal: a.principal(q.actor),
		Rewrite: func(recipient string, kept json.RawMessage) ([]normalized.Part, json.RawMessage) {
			return a.rewrite(q, recipient, kept)
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
func (a *Adapter) rewrite(q *question, recipient string, kept json.RawMessage) ([]normalized.Part, json.RawMessage) {
	address, err := identity.ParseAddress(recipient)
	if err != nil {
		return nil, kept
	}
	agent, found := a.options.Directory.Agent(address.Local)
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
	return a.parts(q, agent), route
}
