package pipeline

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/engine/admission"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// ruling is what the operator's rules say about a message: the state in which its turn begins and why, or a refusal.
type ruling struct {
	state, reason string
	refusal       error
	audit         []exchange.AuditRecord // rows that go with the turn, or alone with a refusal
}

// initialStates are the states in which the turns of messages begin that are not refused.
var initialStates = map[admission.Outcome]string{
	admission.Allowed: exchange.StateAccepted, admission.Held: exchange.StateHeld, admission.Silent: exchange.StateSilent,
}

// admit asks the operator's rules about a message. The sender of a refused one hears a plain sentence, the operator the reason.
func (s *acceptor) admit(agent agents.Entry, in *exchange.Inbound) ruling {
	answer := admission.Decide(admission.Question{
		Sender: in.Message.Sender, Settings: &agent.Settings, Listed: s.options.Moderator.Sender(in.Message.Sender), NoReply: in.NoReply,
		Decides: func() bool { return mayDecide(agent, *in) },
	})

	decided := ruling{state: initialStates[answer.Outcome], reason: answer.Reason}
	if answer.Code != "" {
		decided.audit = []exchange.AuditRecord{auditRow(agent.Profile.Name, *in, answer.Code, answer.Reason)}
	}
	if answer.Outcome == admission.Denied {
		decided.refusal = fault.New(fault.Forbidden, keptOut(answer.By()))
	}
	return decided
}

// keptOut is what a sender hears whom this check keeps out.
func keptOut(check string) string {
	switch check {
	case admission.CheckLists:
		return "this server does not take messages from you"
	case admission.CheckUnverified:
		return "this agent does not take messages from senders without a valid proof"
	}
	return "this agent is not open to you"
}

func auditRow(agent string, in exchange.Inbound, code, detail string) exchange.AuditRecord {
	return exchange.AuditRecord{
		ID: newID(), At: time.Now(), Code: code, Agent: agent, Principal: in.Message.Sender.Principal(),
		Detail: broughtBy(detail, carrierOf(in.Message.Sender)),
	}
}

// broughtBy adds the carrier to the detail of an audit record.
func broughtBy(detail, carrier string) string {
	if carrier == "" {
		return detail
	}
	return detail + "; brought by " + carrier
}

// disbelief makes the audit rows of evidence that was offered and not believed.
func disbelief(agent string, in exchange.Inbound) []exchange.AuditRecord {
	rows := make([]exchange.AuditRecord, 0, len(in.Rejected))
	for _, rejected := range in.Rejected {
		detail := rejected.Reason
		if rejected.Issuer != "" {
			detail += " (issuer " + rejected.Issuer + ", subject " + rejected.Subject + ")"
		}
		rows = append(rows, auditRow(agent, in, rejected.Code, detail))
	}
	return rows
}

// refuse writes the audit rows of a message that gets no turn and returns its refusal. A database that is down comes
// first: the peer repeats the message, and the refusal is then on record.
func (s *acceptor) refuse(ctx context.Context, refusal error, rows []exchange.AuditRecord) error {
	if len(rows) == 0 {
		return refusal
	}
	err := s.options.Store.InTx(ctx, func(tx Tx) error { return auditAll(ctx, tx, "", rows) })
	if err != nil {
		return unavailable("audit refusal", err)
	}
	return refusal
}

func auditAll(ctx context.Context, tx Tx, turnID string, rows []exchange.AuditRecord) error {
	for _, row := range rows {
		if row.TurnID == "" {
			row.TurnID = turnID
		}
		if err := tx.Audit(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// permits asks the agent's rules about one purpose of a sender.
func permits(agent agents.Entry, sender normalized.Sender) func(purpose string) bool {
	return func(purpose string) bool {
		return agent.Settings.Decide(purpose, sender).Allowed
	}
}

var closures = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_closed_total", Help: "Messages that were put off before anything was stored, by reason (paused, backlog, disk, clock).",
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
	exchange.ClosedClock:   {Public: "the server cannot accept messages right now", RetryAfter: time.Minute},
}

// open refuses a message that its agent does not take just now; the peer comes again.
func (s *acceptor) open(agent string, proven bool) error {
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

// Moderator is what the operator's lists say; *moderation.Lists is one. It answers from memory.
type Moderator interface {
	Sender(sender normalized.Sender) moderation.Verdict
	// Stopped says since when the principal wants to hear nothing from the agent.
	Stopped(agent, principal string) (time.Time, bool)
	// Note takes over a stop word, or its end, that was just written.
	Note(entry exchange.ListEntry, removed bool)
}

// anyone is in charge where Options.Moderator is nil: no sender is kept out.
type anybody struct{}

func (anybody) Sender(normalized.Sender) moderation.Verdict { return moderation.Verdict{} }
func (anybody) Stopped(string, string) (time.Time, bool)    { return time.Time{}, false }
func (anybody) Note(entry exchange.ListEntry, removed bool) {}

// withdrawn ends the run of a turn that must not be answered any more: since it was accepted, its sender was blocked.
func (s *runner) withdrawn(ctx context.Context, turn exchange.TurnRecord) (bool, error) {
	reason := s.cancels.unwanted(turn)
	if reason == "" {
		return false, nil
	}
	if _, err := s.cancels.Cancel(ctx, turn.ID, reason); err != nil && !fault.Is(err, fault.Conflict) {
		return true, queue.RetryAfter(time.Second, err)
	}
	return true, nil
}

// CancelRunning stops the runs of this process whose senders were blocked since they began. Turns that wait for their run
// are looked at when it begins.
func (s *canceller) CancelRunning(ctx context.Context) {
	for _, turn := range s.broker.runningTurns() {
		reason := s.unwanted(turn)
		if reason == "" {
			continue
		}
		if _, err := s.Cancel(ctx, turn.ID, reason); err != nil {
			s.broker.cancel(turn.ID, reason) // another node or command was faster: the row is cancelled, the run is not
		}
	}
}

// unwanted says why a turn must not be answered any more; empty = it may.
func (s *canceller) unwanted(turn exchange.TurnRecord) string {
	if verdict := s.options.Moderator.Sender(turn.Message.Sender); verdict.Refused() {
		return verdict.Reason
	}
	if since, stopped := s.options.Moderator.Stopped(turn.Agent, turn.Principal); stopped {
		return "the sender said stop on " + since.UTC().Format(time.RFC3339)
	}
	return ""
}
