package pipeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

var chainsStopped = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_chains_stopped_total",
	Help: "Messages of other agents that were not answered, by reason (exhausted, ping_pong, too_deep).",
}, []string{"reason"})

// Two agents that keep answering each other are stopped apart from hops: more than pingPongTurns messages of one agent in
// one thread within pingPongWithin are not answered (message contract, section 7).
const (
	pingPongTurns  = 6
	pingPongWithin = 10 * time.Minute
)

// Pace is how a conversation between agents goes.
type Pace struct {
	Chain  *normalized.AgentChain // of the newest message of the thread; nil when a person wrote it, or nobody
	Total  int                    // messages of the principal in the thread, counted up to 100
	Recent int                    // messages of the principal in the thread since the time asked for
}

// guarded reports whether guard has a say about a message.
func guarded(in exchange.Inbound) bool {
	return in.FromAgent || in.Message.RecipientCapabilities.AgentChain != nil
}

// guard looks at a message of an agent inside the transaction that stores it: it counts the hop by thread where the
// protocol does not carry it, and makes the turn silent when the chain is used up or the two play ping-pong. The records
// are written when the turn was stored, so that a repeated message leaves none.
func (s *Service) guard(
	ctx context.Context, tx Tx, agent agents.Entry, turn *exchange.TurnRecord,
) ([]exchange.AuditRecord, error) {
	capabilities := &turn.Message.RecipientCapabilities
	pace, err := tx.Pace(ctx, turn.Agent, turn.Principal, turn.ThreadID, turn.AcceptedAt.Add(-s.options.Limiters.BotWindow))
	if err != nil {
		return nil, err
	}
	given, exhausted := capabilities.AgentChain, false
	if given == nil || hinted(capabilities.MentionRelay) {
		capabilities.AgentChain, exhausted = byThread(given, pace.Chain, agent.Settings.MaxHops)
	}
	switch {
	case turn.State == exchange.StateSilent:
		return nil, nil
	case s.options.Limiters.tooDeep(pace.Total) != "":
		return silence(turn, auditTooDeep, s.options.Limiters.tooDeep(pace.Total)), nil
	case exhausted:
		return silence(turn, auditExhausted, fmt.Sprintf("agents have answered each other %d times in this thread", capabilities.AgentChain.MaxHops)), nil
	case pace.Recent >= s.options.Limiters.BotTurns:
		return silence(turn, auditPingPong, fmt.Sprintf("more than %d messages of this agent in this thread within %v", s.options.Limiters.BotTurns, s.options.Limiters.BotWindow)), nil
	}
	return nil, nil
}

// silence turns a message into a dead letter: it is stored and never answered.
func silence(turn *exchange.TurnRecord, code, why string) []exchange.AuditRecord {
	turn.State, turn.Reason = exchange.StateSilent, code+": "+why
	return []exchange.AuditRecord{auditOf(*turn, code, why)}
}

func countStopped(dead []exchange.AuditRecord) {
	for _, record := range dead {
		chainsStopped.WithLabelValues(strings.TrimPrefix(record.Code, "chain:")).Inc()
	}
}

// byThread counts the hop where nothing carries it: one more than that of the newest message of the thread. A hint can
// only make it stricter. A used-up chain stays at its end, so that the next message of an agent finds it used up too;
// a message of a person begins anew.
func byThread(hint, newest *normalized.AgentChain, ceiling int) (chain *normalized.AgentChain, exhausted bool) {
	hop := 1
	if newest != nil {
		hop = newest.Hop + 1
	}
	if hint != nil {
		hop, ceiling = max(hop, hint.Hop), min(ceiling, hint.MaxHops)
	}
	return chainOf(min(hop, ceiling), ceiling), hop > ceiling
}
