package pipeline

import (
	"context"
	"time"

	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// Moderator is what the operator's lists say; *moderation.Lists is one. It answers from memory.
type Moderator interface {
	Sender(sender normalized.Sender) moderation.Verdict
	// Stopped says since when the principal wants to hear nothing from the agent.
	Stopped(agent, principal string) (time.Time, bool)
	// Note takes over a stop word, or its end, that was just written.
	Note(entry exchange.ListEntry, removed bool)
}

// anybody is in charge where Options.Moderator is nil: nobody is kept out.
type anybody struct{}

func (anybody) Sender(normalized.Sender) moderation.Verdict { return moderation.Verdict{} }
func (anybody) Stopped(string, string) (time.Time, bool)    { return time.Time{}, false }
func (anybody) Note(entry exchange.ListEntry, removed bool) {}

const refusedPublic = "this server does not take messages from you"

// withdrawn ends the run of a turn that must not be answered any more: since it was accepted, its sender was blocked.
func (s *Service) withdrawn(ctx context.Context, turn exchange.TurnRecord) (bool, error) {
	reason := s.unwanted(turn)
	if reason == "" {
		return false, nil
	}
	if _, err := s.Cancel(ctx, turn.ID, reason); err != nil && !fault.Is(err, fault.Conflict) {
		return true, queue.RetryAfter(time.Second, err)
	}
	return true, nil
}

// CancelRunning stops the runs of this process whose senders were blocked since they began. Turns that wait for their run
// are looked at when it begins.
func (s *Service) CancelRunning(ctx context.Context) {
	for _, turn := range s.broker.runningTurns() {
		reason := s.unwanted(turn)
		if reason == "" {
			continue
		}
		if _, err := s.Cancel(ctx, turn.ID, reason); err != nil {
			s.broker.cancel(turn.ID) // another node or command was faster: the row is cancelled, the run is not
		}
	}
}

// unwanted says why a turn must not be answered any more; empty = it may.
func (s *Service) unwanted(turn exchange.TurnRecord) string {
	if verdict := s.options.Moderator.Sender(turn.Message.Sender); verdict.Refused() {
		return verdict.Reason
	}
	if since, stopped := s.options.Moderator.Stopped(turn.Agent, turn.Principal); stopped {
		return "the sender said stop on " + since.UTC().Format(time.RFC3339)
	}
	return ""
}
