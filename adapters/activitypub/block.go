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
func (a *Adapter) block(ctx context.Context, in *incoming) (string, error) {
	agent, found := a.agentOf(document.Reference(in.activity["object"]))
	if !found {
		return outcomeIgnored, nil
	}
	if err := a.forgetBlockID(ctx, agent.Name, in.actor, in.id); err != nil {
		return "", unavailable(err)
	}
	if err := a.putBlock(ctx, agent.Name, in.actor, in.id); err != nil {
		return "", unavailable(err)
	}
	if in.id != "" {
		if err := a.putJSON(ctx, blockIDNamespace, deedKey(in.id, in.actor), followed{agent.Name, in.actor}); err != nil {
			return "", unavailable(err)
		}
	}
	if err := a.options.Amender.CancelOpen(ctx, agent.Name, a.principal(in.actor), reasonBlocked); err != nil {
		return "", err
	}
	return a.unfollow(ctx, agent.Name, in.actor)
}

// unblock lets the agent write to the actor again.
func (a *Adapter) unblock(ctx context.Context, agent, actor string) error {
	if err := a.forgetBlockID(ctx, agent, actor, ""); err != nil {
		return err
	}
	return a.options.State.Delete(ctx, blockNamespace+agent, actor)
}

// forgetBlockID removes the way back from the id of an older Block, unless it is the given one: the ids are the sender's to
// invent, and one actor keeps one row.
func (a *Adapter) forgetBlockID(ctx context.Context, agent, actor, but string) error {
	value, found, err := a.options.State.Get(ctx, blockNamespace+agent, actor)
	var id string
	if err != nil || !found || json.Unmarshal(value, &id) != nil || id == "" || id == but {
		return err
	}
	return a.options.State.Delete(ctx, blockIDNamespace, deedKey(id, actor))
}

// blocked says whether an actor blocks an agent.
func (a *Adapter) blocked(ctx context.Context, agent, actor string) (bool, error) {
	if actor == "" {
		return false, nil
	}
	_, found, err := a.options.State.Get(ctx, blockNamespace+agent, actor)
	return found, err
}

// mayBlock is blocked for the hot path, up to blockingLife late: hardly an agent has a single Block to look for.
func (a *Adapter) mayBlock(ctx context.Context, agent, actor string) (bool, error) {
	if blocking, known := a.blocking.get(agent, a.now()); known && !blocking {
		return false, nil
	}
	keys, _, err := a.options.State.List(ctx, blockNamespace+agent, "", 1)
	if err != nil {
		return false, err
	}
	if len(keys) > 0 {
		return a.blocked(ctx, agent, actor)
	}
	a.blocking.put(agent, false, a.now().Add(blockingLife))
	return false, nil
}

// putBlock stores that an actor blocks an agent.
func (a *Adapter) putBlock(ctx context.Context, agent, actor, id string) error {
	err := a.putJSON(ctx, blockNamespace+agent, actor, id)
	a.blocking.drop(agent)
	return err
}
