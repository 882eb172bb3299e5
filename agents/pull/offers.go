package pull

import (
	"context"
	"time"

	"inbox/internal/fault"
)

// offersPage is how many offers one look reads.
const offersPage = 16

// enter counts a request that waits for turns; leave counts it out.
func (a *Agent) enter() (leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pollers >= MaxPollers {
		return nil, &fault.Fault{
			Kind: fault.RateLimited, Public: "too many programs wait for turns of this agent at the same time", RetryAfter: lookEvery,
		}
	}
	a.pollers++
	pollers.Inc()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pollers--
		pollers.Dec()
	}, nil
}

// due reports whether it is time to look for what other nodes offer. One poller looks for all of this node.
func (a *Agent) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.looked) < lookEvery {
		return false
	}
	a.looked = time.Now()
	return true
}

// turn is a run that was taken.
type turn struct {
	run      string
	document []byte
}

// take returns the oldest turn that nobody has, and wakes others when more are left; nil = there is none.
func (a *Agent) take(ctx context.Context) (*turn, error) {
	s, after := a.service, ""
	for {
		keys, values, err := s.options.Mailbox.List(ctx, offersSpace+a.name, after, offersPage)
		if err != nil {
			return nil, unavailable("taking a turn", err)
		}
		for i, run := range keys {
			after = run
			taken, err := a.claim(ctx, run, values[i])
			if err != nil {
				return nil, unavailable("taking a turn", err)
			}
			if taken != nil {
				s.bells.ring(offersTopic(a.name), len(keys)-i-1)
				return taken, nil
			}
		}
		if len(keys) < offersPage {
			return nil, nil
		}
	}
}

// claim takes one offer unless somebody was faster.
func (a *Agent) claim(ctx context.Context, run string, value []byte) (*turn, error) {
	var offered offer
	if err := decode(value, &offered); err != nil {
		return nil, err
	}
	s := a.service
	mine := claim{Agent: a.name, Turn: offered.Turn, Attempt: offered.Attempt, Until: offered.Until}
	won, err := s.rows.first(ctx, runSpace+run, claimKey, mine, nil, offered.Until)
	if err != nil || !won {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // the turn is ours: it is given out or given back
	s.bells.ringAll(runTopic(run))
	if err := s.options.Mailbox.Delete(ctx, offersSpace+a.name, run); err != nil {
		s.giveBack(ctx, a, run, offered.Until)
		return nil, err
	}
	document, found, err := s.options.Mailbox.Get(ctx, requestsSpace, run)
	if err != nil || !found {
		s.giveBack(ctx, a, run, offered.Until)
		return nil, err
	}
	return &turn{run: run, document: document}, nil
}

// giveBack ends a run that its program never heard of; who looks after it offers the turn again at once. If even that
// cannot be written the lease runs out.
func (s *Service) giveBack(ctx context.Context, agent *Agent, run string, until time.Time) {
	takes.WithLabelValues("undelivered").Inc()
	_, _ = s.rows.end(ctx, run, end{Outcome: undelivered}, until)
	s.ended(agent, run)
}

// ended wakes who waits for the end of a run on this node.
func (s *Service) ended(agent *Agent, run string) {
	s.bells.ringAll(runTopic(run))
	s.bells.ringAll(endsTopic(agent.name))
	s.sessions.forget(run)
}
