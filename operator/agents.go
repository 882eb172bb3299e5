package operator

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/activitypub"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// AgentSummary is one configured agent.
type AgentSummary struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Address     string `json:"address"`
	DisplayName string `json:"display_name"`
	Summary     string `json:"summary,omitempty"`
	Access      string `json:"access"`
	Unverified  string `json:"unverified"`

	ClosedTools []string `json:"closed_tools,omitempty"` // tools, or server/*, that no rule opens: its model never sees them

	Down *Outage `json:"down,omitempty"` // what answers for it is down; nil = it is not, as far as the server knows

	Paused *exchange.ListEntry `json:"paused,omitempty"` // since when and why the agent rests; nil = it works
	// PausedWithAll says since when and why all agents wait with their work; nil = they do not.
	PausedWithAll *exchange.ListEntry `json:"paused_with_all,omitempty"`
}

// Outage is one of what answers for an agent.
type Outage struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
	Next   time.Time `json:"next_attempt"` // a waiting message may ask again from then on
}

// Agents are the agents of the configuration.
type Agents struct {
	config func() *config.Config
	pauses Pauses
}

// Access says what the configuration in force says about a sender; see CheckAccess.
func (a Agents) Access(question AccessQuestion) (AccessAnswer, error) {
	return CheckAccess(a.config(), question)
}

// AgentFilter selects agents. Empty fields do not restrict.
type AgentFilter struct {
	Name  string // without regard to case
	Kind  string
	State string // works, paused or down
}

// States of an agent for AgentFilter.
const (
	AgentWorks  = "works"
	AgentPaused = "paused"
	AgentDown   = "down"
)

// List lists agents in the order of the configuration, with their pauses. fault.Malformed for a state that there is not.
func (a Agents) List(ctx context.Context, filter AgentFilter) ([]AgentSummary, error) {
	if filter.State != "" && !slices.Contains([]string{AgentWorks, AgentPaused, AgentDown}, filter.State) {
		return nil, fault.InField("state", "must be one of works, paused, down")
	}

	agents := ConfiguredAgents(a.config())
	if err := a.pauses.MarkStates(ctx, agents); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(listed(agents), func(one AgentSummary) bool { return !filter.Selects(one) }), nil
}

// Selects reports whether the filter selects an agent.
func (f AgentFilter) Selects(agent AgentSummary) bool {
	state := AgentWorks
	switch {
	case agent.Paused != nil || agent.PausedWithAll != nil:
		state = AgentPaused
	case agent.Down != nil:
		state = AgentDown
	}
	return (f.Name == "" || strings.EqualFold(f.Name, agent.Name)) && (f.Kind == "" || f.Kind == agent.Kind) &&
		(f.State == "" || f.State == state)
}

// MarkStates notes in a list of agents which of them rest, and which are down.
func (p Pauses) MarkStates(ctx context.Context, agents []AgentSummary) error {
	outages, err := p.store.BackEnds(ctx)
	if err != nil {
		return err
	}
	for _, outage := range outages {
		for i := range agents {
			if agents[i].Name == outage.Agent && outage.ClosedAt.IsZero() {
				agents[i].Down = &Outage{Since: outage.Since, Reason: outage.Reason, Next: outage.ProbeAt}
			}
		}
	}

	entries, err := p.List(ctx)
	for _, entry := range entries {
		for i := range agents {
			if strings.EqualFold(agents[i].Name, entry.Target) {
				agents[i].Paused = &entry
			}
			if entry.Kind == exchange.TargetAll {
				agents[i].PausedWithAll = &entry
			}
		}
	}
	return err
}

// ConfiguredAgents lists the agents of a configuration.
func ConfiguredAgents(c *config.Config) []AgentSummary {
	list := make([]AgentSummary, 0, len(c.Agents))
	for i := range c.Agents {
		a := &c.Agents[i]
		list = append(list, AgentSummary{
			Name: a.Name, Kind: a.Kind, Address: identity.Address{Local: a.Name, Domain: c.Domain}.String(),
			DisplayName: a.DisplayName, Summary: a.Summary, Access: a.Access, Unverified: a.Unverified, ClosedTools: a.ClosedTools(),
		})
	}
	return list
}

// HasDatabase reports whether there is a database to ask. That of a new data directory is made by the first start, not by a look
// at its configuration.
func HasDatabase(c *config.Config) bool {
	if c.DatabaseURL.Reveal() != "sqlite" {
		return true
	}
	_, err := os.Stat(filepath.Join(c.DataDir, store.File))
	return err == nil
}

func configuredAgent(c *config.Config, name string) (*config.Agent, error) {
	for i := range c.Agents {
		if strings.EqualFold(c.Agents[i].Name, name) {
			return &c.Agents[i], nil
		}
	}
	return nil, fault.Newf(fault.NotFound, "there is no agent %q; see: inbox agents list", name)
}

// Pauses let agents rest. Servers that run notice within seconds.
type Pauses struct {
	store  *store.Store
	agents func() []string
}

// Begin lets an agent rest: it takes nothing new, and what it has taken waits. fault.NotFound when there is no such agent.
func (p Pauses) Begin(ctx context.Context, name, reason string) error {
	if !slices.ContainsFunc(p.agents(), func(one string) bool { return strings.EqualFold(one, name) }) {
		return fault.Newf(fault.NotFound, "there is no agent %q; see: inbox agents list", name)
	}
	entry := pauseOf(name)
	entry.ID, entry.CreatedAt = uuid.Must(uuid.NewV7()).String(), now()
	entry.Reason, entry.Source = reason, "operator"
	return p.store.PutListEntries(ctx, entry)
}

// End lets an agent work again; fault.NotFound when it does not rest.
func (p Pauses) End(ctx context.Context, name string) error {
	removed, err := p.store.RemoveListEntry(ctx, pauseOf(name))
	if err == nil && !removed {
		err = fault.Newf(fault.NotFound, "%s is not paused", name)
	}
	return err
}

// BeginAll lets all agents of all nodes wait with their work, in one transaction: messages are accepted and their turns wait. It is
// no error when they do already; the reason is then the new one.
func (p Pauses) BeginAll(ctx context.Context, reason string) (exchange.ListEntry, error) {
	entry := pauseOfAll()
	entry.ID, entry.CreatedAt = uuid.Must(uuid.NewV7()).String(), now()
	entry.Reason, entry.Source = reason, "operator"
	if err := p.store.PutListEntries(ctx, entry); err != nil {
		return entry, err
	}
	stored, _, err := p.All(ctx)
	return stored, err
}

// EndAll lets all agents work again but those that rest by their name; fault.NotFound when there is no such pause.
func (p Pauses) EndAll(ctx context.Context) error {
	removed, err := p.store.RemoveListEntry(ctx, pauseOfAll())
	if err == nil && !removed {
		err = fault.New(fault.NotFound, "the agents are not paused all together")
	}
	return err
}

// All returns the pause of all agents, if there is one.
func (p Pauses) All(ctx context.Context) (exchange.ListEntry, bool, error) {
	entries, err := p.store.ListEntries(ctx, exchange.ListFilter{List: exchange.ListPause, Kind: exchange.TargetAll, Limit: 1})
	if err != nil || len(entries) == 0 {
		return exchange.ListEntry{}, false, err
	}
	return entries[0], true, nil
}

func pauseOfAll() exchange.ListEntry {
	return exchange.ListEntry{List: exchange.ListPause, Kind: exchange.TargetAll, Target: exchange.AllAgents}
}

// List lists the agents that rest, newest first, and the pause of all.
func (p Pauses) List(ctx context.Context) ([]exchange.ListEntry, error) {
	entries, err := p.store.ListEntries(ctx, exchange.ListFilter{List: exchange.ListPause, Limit: 500})
	return listed(entries), err
}

func pauseOf(name string) exchange.ListEntry {
	return exchange.ListEntry{List: exchange.ListPause, Kind: exchange.TargetAgent, Target: strings.ToLower(name)}
}

// Follows are the actors of the fediverse who want to follow an agent and wait for the operator.
type Follows struct {
	config func() *config.Config
	store  *store.Store
	later  func(activitypub.Later) queue.NewJob
}

// Follow is an actor who follows an agent or waits to.
type Follow struct {
	Agent string    `json:"agent"`
	Actor string    `json:"actor"`
	State string    `json:"state"` // waiting or following
	Since time.Time `json:"since"`
}

// States of a Follow.
const (
	FollowWaiting   = "waiting"
	FollowFollowing = "following"
)

// FollowFilter selects follows. Empty fields do not restrict.
type FollowFilter struct {
	Agent string
	State string
	Actor string // address of the actor's document
	After string // Follow.Cursor of the last row of the page before
	Limit int    // 1…500
}

// Cursor names a row of a list of follows.
func (f Follow) Cursor() string { return strings.Join([]string{f.State, f.Agent, f.Actor}, " ") }

// List lists who waits and who follows, by state, agent and actor. fault.NotFound when there is no such agent, fault.Malformed for
// a state or a cursor that cannot be.
func (f Follows) List(ctx context.Context, filter FollowFilter) ([]Follow, error) {
	agents, err := f.agentsOf(filter.Agent)
	if err != nil {
		return nil, err
	}
	if filter.State != "" && filter.State != FollowWaiting && filter.State != FollowFollowing {
		return nil, fault.InField("state", "must be one of waiting, following")
	}
	if filter.After != "" && strings.Count(filter.After, " ") < 2 {
		return nil, fault.InField("before", "is not one that this server gave")
	}

	found := []Follow{}
	for _, kind := range []struct{ state, namespace string }{
		{FollowFollowing, activitypub.FollowerNamespace}, {FollowWaiting, activitypub.PendingNamespace},
	} {
		for _, agent := range agents {
			if filter.State != "" && filter.State != kind.state {
				continue
			}
			rows, err := f.rows(ctx, filter, Follow{Agent: agent, State: kind.state}, kind.namespace+agent)
			if err != nil {
				return nil, err
			}
			if found = append(found, rows...); len(found) >= filter.Limit {
				return found[:filter.Limit], nil
			}
		}
	}
	return found, nil
}

// agentsOf returns the names of the agents that are meant, in order; empty = of all.
func (f Follows) agentsOf(name string) (names []string, err error) {
	if name != "" {
		entry, err := configuredAgent(f.config(), name)
		if err != nil {
			return nil, err
		}
		return []string{entry.Name}, nil
	}

	for _, agent := range f.config().Agents {
		names = append(names, agent.Name)
	}
	slices.Sort(names)
	return names, nil
}

// rows reads the follows of one state and agent behind the cursor.
func (f Follows) rows(ctx context.Context, filter FollowFilter, of Follow, namespace string) ([]Follow, error) {
	after := ""
	if filter.After != "" {
		state, rest, _ := strings.Cut(filter.After, " ")
		agent, actor, _ := strings.Cut(rest, " ")
		switch {
		case of.State < state || of.State == state && of.Agent < agent:
			return nil, nil
		case of.State == state && of.Agent == agent:
			after = actor
		}
	}

	actors, values, err := f.store.State().List(ctx, namespace, after, filter.Limit)
	if filter.Actor != "" {
		var value []byte
		var there bool
		value, there, err = f.store.State().Get(ctx, namespace, filter.Actor)
		if actors, values = nil, nil; there && filter.Actor > after {
			actors, values = []string{filter.Actor}, [][]byte{value}
		}
	}

	rows := make([]Follow, 0, len(actors))
	for i, actor := range actors {
		row := of
		_ = json.Unmarshal(values[i], &row) // it has the time alone; a row that was changed by hand is shown without
		row.Agent, row.State, row.Actor = of.Agent, of.State, actor
		rows = append(rows, row)
	}
	return rows, err
}

// Decide lets an actor follow an agent, or refuses it; a server that runs tells the actor. fault.NotFound when the actor does
// not wait.
func (f Follows) Decide(ctx context.Context, agent, actor string, accept bool) error {
	entry, err := configuredAgent(f.config(), agent)
	if err != nil {
		return err
	}

	_, found, err := f.store.State().Get(ctx, activitypub.PendingNamespace+entry.Name, actor)
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

	job := f.later(activitypub.Later{Partition: partition, Payload: payload})
	return f.store.InTx(ctx, func(tx *store.Tx) error { return tx.Enqueue(ctx, job) })
}
