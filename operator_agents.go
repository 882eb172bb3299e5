package inbox

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
)

// PauseAgent lets an agent rest: it takes nothing new, and what it has taken waits. Servers that run notice within
// seconds. fault.NotFound when there is no such agent.
func (o *Operator) PauseAgent(ctx context.Context, name, reason string) error {
	known := slices.Clone(o.registered)
	for i := range o.config.Agents {
		known = append(known, o.config.Agents[i].Name)
	}
	if !slices.ContainsFunc(known, func(one string) bool { return strings.EqualFold(one, name) }) {
		return fault.Newf(fault.NotFound, "there is no agent %q; see: inbox agents list", name)
	}
	entry := pauseOf(name)
	entry.ID, entry.CreatedAt = uuid.Must(uuid.NewV7()).String(), time.Now().UTC().Truncate(time.Millisecond)
	entry.Reason, entry.Source = reason, "operator"
	return o.store.PutListEntries(ctx, entry)
}

// ResumeAgent ends the rest of an agent; fault.NotFound when it does not rest.
func (o *Operator) ResumeAgent(ctx context.Context, name string) error {
	removed, err := o.store.RemoveListEntry(ctx, pauseOf(name))
	if err == nil && !removed {
		err = fault.Newf(fault.NotFound, "%s is not paused", name)
	}
	return err
}

// PausedAgents lists the agents that rest, newest first.
func (o *Operator) PausedAgents(ctx context.Context) ([]exchange.ListEntry, error) {
	entries, err := o.store.ListEntries(ctx, exchange.ListFilter{List: exchange.ListPause, Limit: 500})
	return listed(entries), err
}

func pauseOf(name string) exchange.ListEntry {
	return exchange.ListEntry{List: exchange.ListPause, Kind: exchange.TargetAgent, Target: strings.ToLower(name)}
}
