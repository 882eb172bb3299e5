package agents

import (
	"context"

	"inbox/exchange"
)

// Listener is an agent that wants to hear what became of its answers: that one came back, was reported as unwanted or could
// not be delivered. It is told by the server, not asked: nothing that it does is an answer. Its errors are faults, as those
// of Agent: with Permanent it is not told again.
type Listener interface {
	Hear(ctx context.Context, event exchange.AgentEvent) error
}
