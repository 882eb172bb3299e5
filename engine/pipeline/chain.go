package pipeline

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Codes of the audit records about agents that call agents.
const (
	auditExhausted = "chain:exhausted" // a hop outside the ceiling
	auditStripped  = "chain:stripped"  // the last agent of a chain wanted to go on
	auditPingPong  = "chain:ping_pong" // two agents keep answering each other
	auditTooDeep   = "chain:too_deep"  // they have done so for the whole life of a thread
)

// chain holds a message of a chain of agents to the ceiling: the lower one of the peer and the agent (message contract,
// section 7). A hop outside it is fault.Forbidden with the code chain:exhausted in its public text. What the agent sees
// is the lowered ceiling. A mere hint is left to guard.
func (s *acceptor) chain(agent agents.Entry, in *exchange.Inbound) error {
	capabilities := &in.Message.RecipientCapabilities
	given := capabilities.AgentChain
	if given == nil || hinted(capabilities.MentionRelay) {
		return nil
	}

	ceiling := min(given.MaxHops, agent.Settings.MaxHops)
	if given.Hop < 1 || given.Hop > ceiling {
		return &fault.Fault{
			Kind: fault.Forbidden, Field: "recipient_capabilities.agent_chain.hop",
			Public: fmt.Sprintf("%s: hop %d is outside 1 to %d; answer without asking this agent", auditExhausted, given.Hop, ceiling),
		}
	}

	capabilities.AgentChain = chainOf(given.Hop, ceiling)
	return nil
}

func chainOf(hop, ceiling int) *normalized.AgentChain {
	return &normalized.AgentChain{Hop: hop, MaxHops: ceiling, IsFinal: hop == ceiling}
}

// hinted reports whether a chain on this way is a hint only: mail and the fediverse, where the envelope wakes the
// recipients, have no place for it that their software keeps. There the hop is also counted by thread.
func hinted(relay normalized.MentionRelay) bool {
	return relay.Kind == normalized.RelayRecipientField || relay.Kind == normalized.RelayAddressing
}

// refuseChain writes the audit record when a message is refused because of its chain, and returns the refusal.
func (s *acceptor) refuseChain(ctx context.Context, in exchange.Inbound, refusal error) error {
	f := fault.Of(refusal)
	if f.Kind != fault.Forbidden || !strings.HasPrefix(f.Public, auditExhausted) {
		return refusal
	}
	agent := ""
	if address, err := identity.ParseAddress(in.Message.Recipient); err == nil {
		agent = address.Local
	}
	return s.refuse(ctx, refusal, append([]exchange.AuditRecord{auditRow(agent, in, auditExhausted, f.Public)}, disbelief(agent, in)...))
}

// nextHop returns the chain of a call that the turn's agent makes; ok is false when the chain ends here.
func nextHop(agent agents.Entry, turn exchange.TurnRecord) (next normalized.AgentChain, ok bool) {
	hop, ceiling := 0, agent.Settings.MaxHops
	if chain := turn.Message.RecipientCapabilities.AgentChain; chain != nil {
		hop, ceiling = chain.Hop, min(ceiling, chain.MaxHops)
	}
	return *chainOf(hop+1, ceiling), hop < ceiling
}

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
	Chain  *normalized.AgentChain // of the newest message of the thread; nil when a person wrote it, or it has none
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
func (s *acceptor) guard(
	ctx context.Context, tx Tx, agent agents.Entry, turn *exchange.TurnRecord,
) ([]exchange.AuditRecord, error) {
	capabilities := &turn.Message.RecipientCapabilities
	pace, err := tx.Pace(ctx, turn.Agent, turn.Principal, turn.ThreadID, turn.AcceptedAt.Add(-s.limiters().BotWindow))
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
	case s.limiters().tooDeep(pace.Total) != "":
		return silence(turn, auditTooDeep, s.limiters().tooDeep(pace.Total)), nil
	case exhausted:
		return silence(turn, auditExhausted, fmt.Sprintf("agents have answered each other %d times in this thread", capabilities.AgentChain.MaxHops)), nil
	case pace.Recent >= s.limiters().BotTurns:
		return silence(turn, auditPingPong, fmt.Sprintf("more than %d messages of this agent in this thread within %v", s.limiters().BotTurns, s.limiters().BotWindow)), nil
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

// strip takes everything out of the last answer of a chain that would bring another agent in: questions to others, and
// known agents in to, cc and the text (message contract, section 7). The instruction to conclude is the model's to
// follow and ours to enforce.
func (s *dispatcher) strip(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord, response normalized.Response) normalized.Response {
	var removed []string
	for _, d := range response.Dispatch {
		removed = append(removed, "question to "+d.To)
	}

	asks := len(response.Dispatch) > 0
	response.Dispatch = nil
	known := func(text string) bool { return s.invites(agent, turn, text) }
	everyone := turn.Message.RecipientCapabilities.MentionRelay.Kind == normalized.RelayNone
	drop := func(list []string) (rest []string) {
		for _, text := range list {
			if everyone || known(text) {
				removed = append(removed, "recipient "+text)
				continue
			}
			rest = append(rest, text)
		}
		return rest
	}

	response.To, response.Cc = drop(response.To), drop(response.Cc)
	response.Parts = slices.Clone(response.Parts)

	for i := range response.Parts {
		var mentions []string
		response.Parts[i].Content, mentions = withoutMentions(response.Parts[i].Content, known)
		removed = append(removed, mentions...)
	}

	if len(removed) == 0 {
		return response
	}

	s.tellStripped(ctx, turn, removed)
	if asks {
		return sentence(turn, auditExhausted,
			"Sorry, I would have to ask another agent for this, and this question has been passed on as often as it may.")
	}

	return response
}

func (s *dispatcher) tellStripped(ctx context.Context, turn exchange.TurnRecord, removed []string) {
	detail := strings.Join(removed, ", ")
	s.options.Logger.WarnContext(ctx, "the last agent of a chain wanted to go on", "removed", detail)
	row := auditOf(turn, auditStripped, detail)
	if err := s.options.Store.InTx(ctx, func(tx Tx) error { return tx.Audit(ctx, row) }); err != nil {
		s.options.Logger.ErrorContext(ctx, "write audit record", "code", row.Code, "error", err) // the answer goes out all the same
	}
}

func auditOf(turn exchange.TurnRecord, code, detail string) exchange.AuditRecord {
	return exchange.AuditRecord{
		ID: newID(), At: time.Now(), Code: code, TurnID: turn.ID, Agent: turn.Agent, Principal: turn.Principal, Detail: broughtBy(detail, turn.Carrier),
	}
}

// invites reports whether an address is that of an agent that does not take part here yet, as far as we know: one of this
// server, or one that the operator named.
func (s *dispatcher) invites(agent agents.Entry, turn exchange.TurnRecord, text string) bool {
	address, err := identity.ParseAddress(text)
	if err != nil || s.takesPart(agent, turn, text) {
		return false
	}
	if _, here, err := s.here(agent.Profile.Address, text); err == nil && here {
		return true
	}
	return s.options.KnownAgent != nil && s.options.KnownAgent(address)
}

// mention finds @agent@domain in a text.
var mention = regexp.MustCompile(`@+[A-Za-z0-9_-](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,5})?`)

// maxPasses bounds the search for mentions that appear where others were taken out of a text made for that.
const maxPasses = 16

// withoutMentions takes the sign away that makes a mention of a name: the name stays readable and wakes no agent.
func withoutMentions(text string, known func(string) bool) (out string, removed []string) {
	for range maxPasses {
		if !strings.Contains(text, "@") {
			return text, removed
		}

		before := len(removed)
		text = mention.ReplaceAllStringFunc(text, func(found string) string {
			name := strings.TrimLeft(found, "@")
			if !known("@" + name) {
				return found
			}
			removed = append(removed, "mention of @"+name)
			return name
		})

		if len(removed) == before {
			return text, removed
		}
	}
	return strings.ReplaceAll(text, "@", ""), removed
}
