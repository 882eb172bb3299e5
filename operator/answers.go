package operator

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/activitypub"
	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/operator/lookup"
)

// Answers changes answers that were given. Id is that of an answer, of its message (turn), or its address on the web; by is
// who does it, for the record. Errors are fault.NotFound, fault.Conflict (taken back before), fault.Malformed, and
// fault.Unsupported (the way by which it left knows no such thing).
type Answers struct {
	store    *store.Store
	delivery *delivery.Service
	later    func(activitypub.Later) queue.NewJob
	index    *lookup.Index
}

// Revises reports whether answers of a channel can be changed at all once they were sent. One answer may still be fixed.
func (a Answers) Revises(channel string) bool { return a.delivery.Revises(channel) }

// Delete takes an answer back: every server that has it is told by the running server.
func (a Answers) Delete(ctx context.Context, id, by string) error {
	replyID, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	return a.delivery.Delete(ctx, replyID, by)
}

// Edit replaces the text of an answer; files stay. An empty mime keeps its kind of text.
func (a Answers) Edit(ctx context.Context, id, by, text, mime string) error {
	replyID, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	return a.delivery.Edit(ctx, replyID, by, text, mime)
}

// find reads the id of an answer: its own, that of its message (turn), or its address on the web.
func (a Answers) find(ctx context.Context, id string) (string, error) {
	for _, candidate := range candidates(id) {
		if reply, _, err := a.store.Reply(ctx, candidate); err == nil {
			return reply.ID, nil
		} else if !fault.Is(err, fault.NotFound) {
			return "", err
		}

		turn, err := a.store.Turn(ctx, candidate)
		switch {
		case err == nil && turn.ReplyID != "":
			return turn.ReplyID, nil
		case err == nil:
			return "", fault.Newf(fault.NotFound, "the message %s has no answer", candidate)
		case !fault.Is(err, fault.NotFound):
			return "", err
		}
	}
	replyID, err := a.index.Reply(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return "", fault.Newf(fault.NotFound, "no answer %s was given here; give the id of an answer, any id of its message, or its address", id)
	}
	return replyID, err
}

// Pin shows an answer on the profile of its agent, or no longer; the running server tells the followers. Only what all
// may read can be pinned, at most five of one agent. What is so already stays, and no one is told again. The document that
// says so and the job that tells the followers are one transaction.
func (a Answers) Pin(ctx context.Context, id string, pinned bool) error {
	replyID, err := a.find(ctx, id)
	if err != nil {
		return err
	}

	reply, _, err := a.store.Reply(ctx, replyID)
	switch {
	case err != nil:
		return err
	case pinned && (!reply.Open || !reply.DeletedAt.IsZero()):
		return fault.New(fault.Conflict, "only an answer in the fediverse that everybody may read can be pinned")
	}

	gone, err := a.pinnedAndGone(ctx, reply.Agent)
	if err != nil {
		return err
	}

	return a.store.InTx(ctx, func(tx *store.Tx) error {
		changed, err := changePin(ctx, tx, reply, pinned, gone)
		if err != nil || !changed {
			return err
		}
		later, err := activitypub.PinChange(reply.Agent, reply.ID, uuid.Must(uuid.NewV7()).String(), pinned, time.Now())
		if err != nil {
			return err
		}
		return tx.Enqueue(ctx, a.later(later))
	})
}

// changePin changes the documents and reports whether the answer was not so before. Those of gone answers make place.
func changePin(ctx context.Context, tx *store.Tx, reply exchange.Reply, pinned bool, gone []string) (bool, error) {
	namespace, agent := activitypub.FeaturedNamespace(reply.Agent), strings.ToLower(reply.Agent)
	if err := tx.PutDocument(ctx, activitypub.PinTurn, agent, []byte("{}"), time.Time{}); err != nil {
		return false, err
	}

	for _, id := range gone {
		if _, err := tx.RemoveDocument(ctx, namespace, id); err != nil {
			return false, err
		}
	}

	if !pinned {
		return tx.RemoveDocument(ctx, namespace, reply.ID)
	}

	ids, _, err := tx.ListDocuments(ctx, namespace, "", 2*activitypub.MaxFeatured)
	switch {
	case err != nil || slices.Contains(ids, reply.ID):
		return false, err
	case len(ids) >= activitypub.MaxFeatured:
		return false, fault.Newf(fault.Conflict, "%s has %d pinned answers already; take one off with: inbox unpin ID", reply.Agent, len(ids))
	}

	return true, tx.PutDocument(ctx, namespace, reply.ID, []byte("{}"), time.Time{})
}

// pinnedAndGone are the pinned answers of an agent that were taken back.
func (a Answers) pinnedAndGone(ctx context.Context, agent string) (gone []string, err error) {
	ids, _, err := a.store.State().List(ctx, activitypub.FeaturedNamespace(agent), "", 2*activitypub.MaxFeatured)
	if err != nil {
		return nil, err
	}

	for _, id := range ids {
		reply, _, err := a.store.Reply(ctx, id)
		switch {
		case fault.Is(err, fault.NotFound), err == nil && !reply.DeletedAt.IsZero():
			gone = append(gone, id)
		case err != nil:
			return nil, err
		}
	}

	return gone, nil
}

// candidates are the ids that an address may hold: https://host/o/ID, …/o/ID/2 for a later post, …/o/ID/activity.
func candidates(id string) []string {
	if !strings.Contains(id, "/") {
		return []string{id}
	}
	pieces := strings.Split(strings.TrimRight(id, "/"), "/")
	last := pieces[len(pieces)-1]
	if _, err := strconv.Atoi(last); (err == nil || last == "activity") && len(pieces) > 1 {
		return []string{pieces[len(pieces)-2]}
	}
	return []string{last}
}
