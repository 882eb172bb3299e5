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

// checkListeners reports whether mail and gRPC are taken where they are configured; HTTP is, or nobody would ask.
func (s *Server) checkListeners(context.Context) error {
	switch {
	case s.email != nil && !s.takesMail.Load():
		return fault.New(fault.Unavailable, "mail is not taken")
	case s.grpc != nil && !s.takesGRPC.Load():
		return fault.New(fault.Unavailable, "gRPC is not taken")
	}
	return nil
}
