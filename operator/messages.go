package operator

import (
	"context"
	"slices"
	"strings"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/operator/lookup"
)

// Messages are what was accepted, with what became of it.
type Messages struct {
	Retries

	Timelines Timelines
	Finder    Finder
	Rows      Belongings
	Originals Originals
	Files     func() (exchange.Files, error) // opens the blob store, which large originals alone need

	index *lookup.Index
}

// Originals keep messages as they came.
type Originals interface {
	// Original returns one by its digest; its body is nil when the bytes are in the blob store. fault.NotFound when it is not kept.
	Original(ctx context.Context, digest string) (pipeline.Original, error)
}

// Retries run failed messages again; the answer is a further reply to the sender. By is who wants it, for the record.
type Retries interface {
	// Retry runs one. fault.NotFound without such a message, fault.Conflict when it has not failed, or when it is a task whose
	// end its sender has fetched.
	Retry(ctx context.Context, turnID, by string) error
	// RetryFailed runs all that the filter selects and returns what becomes of each. With dryRun it changes nothing. A second
	// call finds nothing to do.
	RetryFailed(ctx context.Context, filter exchange.RetryFilter, by string, dryRun bool) (exchange.RetryResult, error)
}

// Finder finds messages by their ids; lookup.Index does.
type Finder interface {
	// Find returns the turns to which an id leads, newest first, and the first kind of id that it is; fault.NotFound for none.
	Find(ctx context.Context, id string) (kind string, turns []string, err error)
}

// Belongings are what belongs to a message beside its timeline.
type Belongings interface {
	Deliveries(ctx context.Context, filter delivery.Filter) ([]delivery.Record, error)
	ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error)
	// Takeover returns the newest takeover of a conversation, which may have ended.
	Takeover(ctx context.Context, agent, threadID string) (exchange.Takeover, bool, error)
	WaitingForOperator(ctx context.Context, agent, threadID string, limit int) ([]string, error)
	// TurnJob returns the job of a turn; found is false when it has none.
	TurnJob(ctx context.Context, turn exchange.TurnRecord) (job store.JobRecord, found bool, err error)
	// BackEnds lists the newest outage of each agent that had one.
	BackEnds(ctx context.Context) ([]pipeline.BackEnd, error)
	// Draft returns what the agent said while an operator had the conversation; fault.NotFound when it said nothing.
	Draft(ctx context.Context, turnID string) (exchange.Reply, error)
}

// Timelines find messages and what happened to them.
type Timelines interface {
	Turn(ctx context.Context, id string) (exchange.TurnRecord, error)
	// Events returns at most limit timeline rows of a turn with a higher seq than after, in order.
	Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error)
}

// SinceTime reads an age such as 2h, or a time (RFC 3339). fault.Malformed when it is neither.
func SinceTime(text string, now time.Time) (time.Time, error) { return Moment("since", text, now) }

// Moment is SinceTime for a field of another name.
func Moment(field, text string, now time.Time) (time.Time, error) {
	if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return now.Add(-age), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fault.InField(field, `must be an age such as "2h" or a time such as "2026-05-01T12:00:00Z"`)
	}
	return at, nil
}

// Shown is everything that is known about one message.
type Shown struct {
	Turn       exchange.TurnRecord `json:"turn"`
	Deliveries []delivery.Record   `json:"deliveries"`
	Spent      *exchange.Spent     `json:"spent,omitempty"` // what the steps of its agent took; nil when it wrote none
	Events     []exchange.Event    `json:"events"`

	ToolRequests []exchange.ToolRequest `json:"tool_requests,omitempty"` // oldest first

	// AnsweredBy is the operator who wrote the answer; empty = it is the agent's.
	AnsweredBy string `json:"answered_by,omitempty"`
	// Waits says why a message that an agent is to answer has no run now, and when the next one is; nil = it runs, or waits for something else.
	Waits *Waits `json:"waits,omitempty"`
	// Takeover says which operator writes as the agent in the conversation; nil = none.
	Takeover *exchange.Takeover `json:"takeover,omitempty"`
	// Draft is what the agent said while an operator had the conversation: it did not leave. Nil = nothing.
	Draft *normalized.Response `json:"draft,omitempty"`

	// Found is of which kind the id is by which the message was found; one of lookup.Kinds.
	Found string `json:"found,omitempty"`
	// Others are further turns to which the id leads, newest first and at most lookup.MaxOthers: those of a session, or of an id that
	// several senders chose.
	Others []string `json:"others,omitempty"`
}

// Waits is why a message has no run now.
type Waits struct {
	Reason string    `json:"reason,omitempty"`    // of the last attempt that failed, or of the outage; empty = no attempt has failed
	Since  time.Time `json:"down_since,omitzero"` // since when the back end of the agent is down; zero = it is not
	Next   time.Time `json:"next_attempt"`        // the job is due then
}

// waits returns why a message has no run now.
func (m Messages) waits(ctx context.Context, turn exchange.TurnRecord) (*Waits, error) {
	if turn.State != exchange.StateAccepted && turn.State != exchange.StateRunning {
		return nil, nil
	}
	job, found, err := m.Rows.TurnJob(ctx, turn)
	if err != nil || !found || job.State == "running" {
		return nil, err
	}
	waits := &Waits{Reason: job.Reason, Next: job.RunAt}
	list, err := m.Rows.BackEnds(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range list {
		if one.Agent == turn.Agent && one.ClosedAt.IsZero() {
			waits.Reason, waits.Since = one.Reason, one.Since
		}
	}
	if waits.Reason == "" && !waits.Next.After(now()) {
		return nil, nil // it has just arrived
	}
	return waits, nil
}

// maxShownEvents bounds a shown timeline: a long answer that streamed has many rows.
const maxShownEvents = 10_000

// Show finds a message by any id that a peer, a client or a line of the log showed (lookup.Kinds). Of several messages of one conversation, or
// of one proven sender, it shows the newest and names the others. fault.NotFound says that nothing was accepted under it. fault.Conflict lists the messages and their senders
// where senders chose the id and it fits several: none of them is shown as the one that was meant.
func (m Messages) Show(ctx context.Context, id string) (Shown, error) {
	kind, turns, err := m.Finder.Find(ctx, id)
	if err != nil {
		return Shown{}, err
	}

	shown := Shown{Found: kind}
	if shown.Turn, shown.Others, err = m.meant(ctx, kind, id, turns); err != nil {
		return shown, err
	}
	turnID := shown.Turn.ID
	if shown.Deliveries, err = m.Rows.Deliveries(ctx, delivery.Filter{TurnID: turnID, Limit: 500}); err != nil {
		return shown, err
	}

	shown.AnsweredBy, shown.Deliveries = exchange.AnsweredBy(shown.Turn), listed(shown.Deliveries)
	if shown.ToolRequests, err = m.Rows.ToolRequests(ctx, exchange.ToolRequestFilter{TurnID: turnID, All: true, Limit: 500}); err != nil {
		return shown, err
	}

	if err := m.showOperators(ctx, &shown); err != nil {
		return shown, err
	}
	if shown.Waits, err = m.waits(ctx, shown.Turn); err != nil {
		return shown, err
	}

	shown.Events, err = m.Timeline(ctx, turnID, maxShownEvents)
	shown.Spent = exchange.SpentBy(shown.Events)
	return shown, err
}

// meant returns the message that an id means, and the ids of the others to which it leads.
func (m Messages) meant(ctx context.Context, kind, id string, turns []string) (turn exchange.TurnRecord, others []string, err error) {
	if len(turns) == 1 || lookup.OfActs[kind] {
		turn, err = m.Timelines.Turn(ctx, turns[0])
		return turn, turns[1:], err
	}

	found := make([]exchange.TurnRecord, len(turns))
	for i := range turns {
		if found[i], err = m.Timelines.Turn(ctx, turns[i]); err != nil {
			return turn, nil, err
		}
	}
	ordered, _, err := lookup.Order(kind, id, found)
	switch {
	case err == nil:
		found = ordered
	case !ofOneSender(found):
		return turn, nil, err
	}
	for i := range found[1:] {
		others = append(others, found[1+i].ID)
	}
	return found[0], others, nil
}

// ofOneSender reports whether one proven sender wrote all messages, such as a mail to several agents: no other person's is shown in place of one then.
func ofOneSender(found []exchange.TurnRecord) bool {
	return !strings.HasPrefix(found[0].Principal, normalized.Unproven) &&
		!slices.ContainsFunc(found, func(turn exchange.TurnRecord) bool { return turn.Principal != found[0].Principal })
}

// showOperators adds who writes as the agent, and what the agent said meanwhile.
func (m Messages) showOperators(ctx context.Context, shown *Shown) error {
	open, found, err := m.Rows.Takeover(ctx, shown.Turn.Agent, shown.Turn.ThreadID)
	if err != nil {
		return err
	}
	if found && open.Open() {
		waiting, err := m.Rows.WaitingForOperator(ctx, open.Agent, open.ThreadID, exchange.MaxWaitingOfThread)
		if err != nil {
			return err
		}
		open.Waiting = len(waiting)
		shown.Takeover = &open
	}

	draft, err := m.Rows.Draft(ctx, shown.Turn.ID)
	switch {
	case err == nil:
		shown.Draft = &draft.Response
	case !fault.Is(err, fault.NotFound):
		return err
	}
	return nil
}

// Turn returns a message; fault.NotFound when there is none with the id.
func (m Messages) Turn(ctx context.Context, id string) (exchange.TurnRecord, error) {
	return m.Timelines.Turn(ctx, id)
}

const eventPage = 500

// Timeline returns what happened to a message, oldest first, at most so many rows.
func (m Messages) Timeline(ctx context.Context, turnID string, most int) (events []exchange.Event, err error) {
	for after := int64(0); len(events) < most; {
		page, err := m.Timelines.Events(ctx, turnID, after, min(eventPage, most-len(events)))
		if err != nil {
			return nil, err
		}
		events = append(events, page...)
		if len(page) < eventPage {
			break
		}
		after = page[len(page)-1].Seq
	}
	return events, nil
}
