package activitypub

import (
	"context"
	"encoding/json"
	"time"

	"inbox/adapters/activitypub/document"
)

const (
	blockNamespace = "activitypub.block." // + agent: actor IRI → id of the Block
	// blockingLife is how long it is believed that nobody blocks an agent. A Block that another node took meanwhile still
	// ends every delivery: Deliver asks for the actor itself.
	blockingLife = time.Second
)

// block ends the follow and every further answer to the actor (Deliver asks for it).
func (f *follows) block(ctx context.Context, in *incoming) (string, error) {
	agent, found := f.agentOf(document.Reference(in.activity["object"]))
	if !found {
		return outcomeIgnored, nil
	}
	if err := f.forgetBlockID(ctx, agent.Name, in.actor, in.id); err != nil {
		return "", unavailable(err)
	}
	if err := f.putBlock(ctx, agent.Name, in.actor, in.id); err != nil {
		return "", unavailable(err)
	}
	if in.id != "" {
		if err := f.putJSON(ctx, blockIDNamespace, deedKey(in.id, in.actor), followed{agent.Name, in.actor}); err != nil {
			return "", unavailable(err)
		}
	}
	if err := f.options.Amender.CancelOpen(ctx, agent.Name, f.principal(in.actor), reasonBlocked); err != nil {
		return "", err
	}
	return f.unfollow(ctx, agent.Name, in.actor)
}

// unblock lets the agent write to the actor again.
func (f *follows) unblock(ctx context.Context, agent, actor string) error {
	if err := f.forgetBlockID(ctx, agent, actor, ""); err != nil {
		return err
	}
	return f.options.State.Delete(ctx, blockNamespace+agent, actor)
}

// forgetBlockID removes the way back from the id of an older Block, unless it is the given one: the ids are the sender's to
// invent, and one actor keeps one row.
func (f *follows) forgetBlockID(ctx context.Context, agent, actor, but string) error {
	value, found, err := f.options.State.Get(ctx, blockNamespace+agent, actor)
	var id string
	if err != nil || !found || json.Unmarshal(value, &id) != nil || id == "" || id == but {
		return err
	}
	return f.options.State.Delete(ctx, blockIDNamespace, deedKey(id, actor))
}

// blocked says whether an actor blocks an agent.
func (f *follows) blocked(ctx context.Context, agent, actor string) (bool, error) {
	if actor == "" {
		return false, nil
	}
	_, found, err := f.options.State.Get(ctx, blockNamespace+agent, actor)
	return found, err
}

// mayBlock is blocked for the hot path, up to blockingLife late: hardly an agent has a single Block to look for.
func (f *follows) mayBlock(ctx context.Context, agent, actor string) (bool, error) {
	if blocking, known := f.blocking.get(agent, f.now()); known && !blocking {
		return false, nil
	}
	keys, _, err := f.options.State.List(ctx, blockNamespace+agent, "", 1)
	if err != nil {
		return false, err
	}
	if len(keys) > 0 {
		return f.blocked(ctx, agent, actor)
	}
	f.blocking.put(agent, false, f.now().Add(blockingLife))
	return false, nil
}

// putBlock stores that an actor blocks an agent.
func (f *follows) putBlock(ctx context.Context, agent, actor, id string) error {
	err := f.putJSON(ctx, blockNamespace+agent, actor, id)
	f.blocking.drop(agent)
	return err
}
