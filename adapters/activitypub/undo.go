package activitypub

import (
	"context"
	"encoding/json"

	"inbox/adapters/activitypub/document"
	"inbox/internal/fault"
)

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
	if follow, found, err := b.deed(ctx, followNamespace, id, in.actor); err != nil {
		return "", err
	} else if found {
		return b.follows.unfollow(ctx, follow.Agent, in.actor)
	}
	if block, found, err := b.deed(ctx, blockIDNamespace, id, in.actor); err != nil {
		return "", err
	} else if found {
		return outcomeOf(b.follows.unblock(ctx, block.Agent, in.actor))
	}
	return b.interactions.unreact(ctx, in, nil, id)
}

// deedKey is the key of an activity that can be undone. The actor is part of it, so that nobody can use up or overwrite the
// id of somebody else on the same server. What is too long for a key is hashed.
func deedKey(id, actor string) string {
	if len(actor)+1+len(id) > document.MaxIRIBytes {
		return ownKeyOf(id, actor)
	}
	return actor + " " + id
}

// did gives the document of an activity that can be undone; older ones stand under the id alone.
func (s *site) did(ctx context.Context, namespace, id, actor string) (value []byte, found bool, err error) {
	value, found, err = s.options.State.Get(ctx, namespace, deedKey(id, actor))
	if err != nil || found {
		return value, found, err
	}
	return s.options.State.Get(ctx, namespace, id)
}

// deed finds what the actor did to an agent by the id of the activity.
func (b *inbox) deed(ctx context.Context, namespace, id, actor string) (deed followed, found bool, err error) {
	value, found, err := b.did(ctx, namespace, id, actor)
	if err != nil {
		return deed, false, unavailable(err)
	}
	return deed, found && json.Unmarshal(value, &deed) == nil && deed.Actor == actor, nil
}
