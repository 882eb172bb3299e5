package inbox

import (
	"context"
	"encoding/json"
	"time"

	"inbox/adapters/activitypub"
	"inbox/exchange"
	"inbox/internal/fault"
)

// PendingFollow is somebody who wants to follow an agent and waits for the operator.
type PendingFollow struct {
	Agent string    `json:"agent"`
	Actor string    `json:"actor"`
	Since time.Time `json:"since"`
}

// PendingFollows lists who waits to follow an agent, at most 500.
func (o *Operator) PendingFollows(ctx context.Context, agent string) ([]PendingFollow, error) {
	entry, err := configuredAgent(o.config, agent)
	if err != nil {
		return nil, err
	}
	actors, values, err := o.store.State().List(ctx, activitypub.PendingNamespace+entry.Name, "", 500)
	pending := make([]PendingFollow, 0, len(actors))
	for i, actor := range actors {
		row := PendingFollow{Agent: entry.Name, Actor: actor}
		if json.Unmarshal(values[i], &row) == nil {
			row.Agent, row.Actor = entry.Name, actor
		}
		pending = append(pending, row)
	}
	return pending, err
}

// DecideFollow lets an actor follow an agent, or refuses it; a server that runs tells the actor. fault.NotFound when the
// actor does not wait.
func (o *Operator) DecideFollow(ctx context.Context, agent, actor string, accept bool) error {
	entry, err := configuredAgent(o.config, agent)
	if err != nil {
		return err
	}
	_, found, err := o.store.State().Get(ctx, activitypub.PendingNamespace+entry.Name, actor)
	if err != nil {
		return err
	}
	if !found {
		return fault.Newf(fault.NotFound, "%s does not wait to follow %s; see: inbox follows list %s", actor, entry.Name, entry.Name)
	}
	partition, payload, err := activitypub.FollowDecision(entry.Name, actor, accept)
	if err != nil {
		return err
	}
	return outbox{o.store}.SendLater(ctx, partition, payload)
}

// Reports lists what other servers complained about, newest first.
func (o *Operator) Reports(ctx context.Context, agent, before string, limit int) ([]exchange.AuditRecord, error) {
	return o.AuditRecords(ctx, exchange.AuditFilter{Code: "report:*", Agent: agent, Before: before, Limit: limit})
}
