package pipeline

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/fault"
)

var closures = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_closed_total", Help: "Messages that were put off before anything was stored, by reason (paused, backlog, disk).",
}, []string{"reason"})

// Closed says which agents take nothing just now. It answers from memory: it is asked for every message.
type Closed interface {
	// Closed says why an agent takes no message; empty = it does.
	Closed(agent string) exchange.Closure
	// ClosedToGuests says why the server takes no message of a sender without proof, while it takes those of others.
	ClosedToGuests() exchange.Closure
	// Paused reports whether what an agent has taken waits, too.
	Paused(agent string) bool
	// Admit notes the bytes that a message is about to take.
	Admit(bytes int64)
}

type alwaysOpen struct{}

func (alwaysOpen) Closed(string) exchange.Closure   { return "" }
func (alwaysOpen) ClosedToGuests() exchange.Closure { return "" }
func (alwaysOpen) Paused(string) bool               { return false }
func (alwaysOpen) Admit(int64)                      {}

// rowBytes is what the rows of a message take on disk beside the message, about.
const rowBytes = 16 << 10

// pausedFor is after how long a waiting turn is looked at again, and so how long an agent may rest too long.
const pausedFor = 5 * time.Second

var closed = map[exchange.Closure]fault.Fault{
	exchange.ClosedPaused:  {Public: "this agent takes no messages for now", RetryAfter: 10 * time.Minute},
	exchange.ClosedBacklog: {Public: "too many messages wait for this agent; try again later", RetryAfter: time.Minute},
	exchange.ClosedDisk:    {Public: "the server cannot store messages right now", RetryAfter: 5 * time.Minute},
}

// open refuses a message that its agent does not take just now; the peer comes again.
func (s *Service) open(agent string, proven bool) error {
	reason := s.options.Closed.Closed(agent)
	if reason == "" && !proven {
		reason = s.options.Closed.ClosedToGuests()
	}
	if reason == "" {
		return nil
	}
	closures.WithLabelValues(string(reason)).Inc()
	refusal := closed[reason]
	refusal.Kind = fault.Unavailable
	return &refusal
}

// BacklogStore counts what waits.
type BacklogStore interface {
	// WaitingTurns counts the turns of an agent, or of all when agent is empty, that wait for their run, up to most.
	WaitingTurns(ctx context.Context, agent string, most int) (int, error)
}

// backlogEvery is how often a Backlog counts; so long a limit may be passed.
const backlogEvery = 2 * time.Second

// Backlog knows which agents have more messages waiting than they may. It counts by itself, so that no message waits for
// that, and asks about single agents only when all together are over the limit of one.
type Backlog struct {
	store  BacklogStore
	most   int
	agents func() []string
	log    *slog.Logger
	full   atomic.Pointer[map[string]bool]
}

// NewBacklog makes a Backlog; most = 0 is no limit.
func NewBacklog(store BacklogStore, most int, agents func() []string, log *slog.Logger) *Backlog {
	return &Backlog{store: store, most: most, agents: agents, log: log}
}

// Full reports whether too many messages wait for an agent.
func (b *Backlog) Full(agent string) bool {
	full := b.full.Load()
	return full != nil && (*full)[agent]
}

// Run counts until ctx ends.
func (b *Backlog) Run(ctx context.Context) error {
	if b.most <= 0 {
		return nil
	}
	ticker := time.NewTicker(backlogEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			b.count(ctx)
		}
	}
}

// count keeps the last answer when the database is down: messages are refused then anyway.
func (b *Backlog) count(ctx context.Context) {
	full := map[string]bool{}
	waiting, err := b.store.WaitingTurns(ctx, "", b.most)
	if err == nil && waiting >= b.most {
		for _, agent := range b.agents() {
			waiting, err = b.store.WaitingTurns(ctx, agent, b.most)
			if err != nil {
				break
			}
			full[agent] = waiting >= b.most
			if full[agent] && !b.Full(agent) {
				b.log.WarnContext(ctx, "too many messages wait for an agent; it takes no more for now", "agent", agent, "waiting", waiting)
			}
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			b.log.WarnContext(ctx, "waiting messages could not be counted", "error", err)
		}
		return
	}
	b.full.Store(&full)
}
