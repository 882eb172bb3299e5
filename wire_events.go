package inbox

import (
	"context"
	"encoding/json"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/queue"
)

// listener returns the agent that wants to hear what became of its answers.
func (s *Server) listener(name string) (agents.Listener, bool) {
	entry, known := s.registry.Lookup(name)
	if !known {
		return nil, false
	}
	listener, is := entry.Agent.(agents.Listener)
	if choosy, able := entry.Agent.(interface{ Hears() bool }); is && able {
		is = choosy.Hears()
	}
	return listener, is
}

func (s *Server) listens(name string) bool {
	_, is := s.listener(name)
	return is
}

const eventConcurrency = 4

// handleEvents tells agents what became of their answers.
func (s *Server) handleEvents() {
	s.queue.Handle(exchange.AgentEventKind, queue.KindOptions{Concurrency: eventConcurrency}, func(ctx context.Context, job queue.Job) error {
		var event exchange.AgentEvent
		if err := json.Unmarshal([]byte(job.Payload), &event); err != nil {
			return queue.GiveUp("the event cannot be read", err)
		}
		listener, is := s.listener(event.Agent)
		if !is {
			return nil // it does not want to hear any more
		}
		return s.delivery.Guard(ctx, job, exchange.AgentEventKind, event.Agent, func(ctx context.Context) error { return listener.Hear(ctx, event) })
	})
}
