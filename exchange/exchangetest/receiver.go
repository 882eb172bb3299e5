package exchangetest

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"inbox/exchange"
	"inbox/normalized"
)

// Agents is a directory.
type Agents []exchange.AgentProfile

// Agents returns all agents.
func (a Agents) Agents() []exchange.AgentProfile { return a }

// Agent finds an agent, whatever the case of the name.
func (a Agents) Agent(name string) (exchange.AgentProfile, bool) {
	i := slices.IndexFunc(a, func(agent exchange.AgentProfile) bool { return strings.EqualFold(agent.Name, name) })
	if i < 0 {
		return exchange.AgentProfile{}, false
	}
	return a[i], true
}

// Receiver records messages as the engine would take them: valid ones, each once.
type Receiver struct {
	Documents *Documents                   // for claims; nil = no message has one
	Limits    normalized.Limits            // zero = the default
	Refuse    func(exchange.Inbound) error // nil = no message is refused
	Blobs     normalized.Keeper            // where files of messages go; nil = nowhere

	mu    sync.Mutex
	taken []exchange.Inbound
}

// Receive takes a message.
func (r *Receiver) Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.Refuse != nil {
		if err := r.Refuse(in); err != nil {
			return exchange.Receipt{}, err
		}
	}

	in.Message.Clean()
	limits := r.Limits
	if limits == (normalized.Limits{}) {
		limits = normalized.DefaultLimits()
	}
	if err := normalized.Validate(in.Message, limits); err != nil {
		return exchange.Receipt{}, err
	}

	if in.Claim != nil {
		if instead := r.Documents.Claim(in.Claim); instead != nil {
			return exchange.Receipt{Claimed: instead}, nil
		}
	}

	for _, known := range r.taken {
		if known.Message.ID == in.Message.ID && known.Message.Recipient == in.Message.Recipient && known.Message.Sender.Principal() == in.Message.Sender.Principal() {
			return exchange.Receipt{TurnID: "turn"}, nil
		}
	}

	for _, content := range in.Files {
		if r.Blobs == nil {
			break
		}
		if _, _, err := r.Blobs.Put(ctx, bytes.NewReader(content)); err != nil {
			return exchange.Receipt{}, err
		}
	}

	r.taken = append(r.taken, in)
	return exchange.Receipt{TurnID: "turn", New: true}, nil
}

// Add records a message without looking at it.
func (r *Receiver) Add(in exchange.Inbound) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = append(r.taken, in)
}

// All returns the messages in the order in which they came.
func (r *Receiver) All() []exchange.Inbound {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.taken)
}

// Only returns the message when there is exactly one.
func (r *Receiver) Only(t testing.TB) exchange.Inbound {
	t.Helper()
	all := r.All()
	if len(all) != 1 {
		t.Fatalf("%d messages were received; want 1", len(all))
	}
	return all[0]
}

// Change lets a test change the messages that were taken.
func (r *Receiver) Change(change func(*exchange.Inbound)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.taken {
		change(&r.taken[i])
	}
}
