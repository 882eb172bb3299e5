package chat

import (
	"context"
	"slices"
	"sync"
)

// FallbackPriority is that of a built-in handler: every other is asked before. DefaultTurns is how many turns it takes
// when nobody says otherwise (agent runtime contract, section 6.1).
const (
	FallbackPriority = 1000
	DefaultTurns     = 12
)

// Delta is one step of a growing answer in canonical form: {type: content, text}, {type: tool_call, tool_call_id,
// tool_name, index} or {type: tool_argument, tool_call_id, text, index}.
type Delta map[string]any

// Emit takes a delta. false = nobody reads any more; the handler may go on without.
type Emit func(Delta) bool

// Handler answers one turn with a chat output. A handler that streams calls emit while the answer grows; emit is nil
// when nobody reads along. An output that is no object is refused by the Dispatcher.
type Handler func(ctx context.Context, input Input, emit Emit) (output any, err error)

// Handlers is who answers which agent. The zero value has nobody; it is safe for concurrent use.
type Handlers struct {
	mu   sync.RWMutex
	rows []handlerRow
}

type handlerRow struct {
	priority int
	agent    string // "" = every agent
	handler  Handler
}

// Register adds a handler for one agent, or for all with an empty name. The lowest priority is asked first, equal ones
// in the order of registration.
func (h *Handlers) Register(priority int, agent string, handler Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows = append(h.rows, handlerRow{priority, agent, handler})
	slices.SortStableFunc(h.rows, func(a, b handlerRow) int { return a.priority - b.priority })
}

// Of gives the first handler of an agent, nil when there is none.
func (h *Handlers) Of(agent string) Handler {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, row := range h.rows {
		if row.handler != nil && (row.agent == "" || row.agent == agent) {
			return row.handler
		}
	}
	return nil
}
