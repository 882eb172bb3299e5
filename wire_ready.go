package inbox

import (
	"context"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// readiness are the conditions of /readyz: what this node needs to accept a message and to work on it. How many messages
// wait is none of them: a second node does not take more of them because this one hears nothing new.
func (s *Server) readiness() []httpserver.Check {
	return []httpserver.Check{
		{Name: "database", Run: s.store.Probe},
		{Name: "queue", Run: func(context.Context) error { return s.queue.Check() }},
		{Name: "disk", Run: func(context.Context) error {
			if s.closed.disk.Full() {
				return fault.New(fault.Unavailable, "there is no room on the disk")
			}
			return nil
		}},
		{Name: "listeners", Run: s.checkListeners},
	}
}

// checkListeners reports whether every channel that listens beside HTTP, such as mail, takes connections.
func (s *Server) checkListeners(context.Context) error {
	if s.notServed.Load() > 0 {
		return fault.New(fault.Unavailable, "a channel takes no connections")
	}
	return nil
}
