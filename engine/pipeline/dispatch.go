package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/queue"
	"inbox/normalized"
)

// DispatchTx is what agents that ask other agents need inside a transaction.
type DispatchTx interface {
	// Pace tells how a thread with another agent goes. Until the transaction ends no other caller reads about the thread.
	Pace(ctx context.Context, agent, principal, threadID string, since time.Time) (Pace, error)
	InsertDispatch(ctx context.Context, d exchange.Dispatch) error
	// FinishDispatch stores the answer to a pending call. It reports whether the call was pending.
	FinishDispatch(ctx context.Context, id string, response normalized.Response, at time.Time) (bool, error)
	// Dispatches returns the calls of a turn in the order of their numbers.
	Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error)
}

// DispatchReader is what is read about calls outside transactions.
type DispatchReader interface {
	// Dispatch returns one call to another agent; fault.NotFound when there is none.
	Dispatch(ctx context.Context, id string) (exchange.Dispatch, error)
	// Dispatches returns the calls of a turn in the order of their numbers.
	Dispatches(ctx context.Context, turnID string) ([]exchange.Dispatch, error)
	// CallsIn reports whether there are calls in a conversation whose id is not made of names (exchange.ConversationName).
	CallsIn(ctx context.Context, threadID string) (bool, error)
}

// DispatchKind is the queue kind of calls to other agents; the payload is the call's id, the partition the conversation
// with the agent that is called. A job of it mostly waits: give it many workers and the queue's own schedule.
const DispatchKind = "dispatch"

// Bounds of one turn that asks other agents.
const (
	maxRounds = agents.MaxQuestionRounds
	maxCalls  = agents.MaxQuestions
)

// errTooMany rolls a transaction back that would store more calls than a turn may make.
var errTooMany = errors.New("the turn asked other agents too often")

// asking reports whether the turn waits for other agents.
func asking(turn exchange.TurnRecord) bool {
	return turn.State == exchange.StateWaiting && turn.Reason == exchange.WaitingDispatch
}

// compose looks through a finished response for agents that are to be asked before anything is sent: then the turn waits
// for them, otherwise it goes on to its end. A run that crashes here is made again; what was not stored was not asked.
func (s *runner) compose(
	ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, record *runRecord, response normalized.Response,
) error {
	response, parked, err := s.calls.askOthers(ctx, job, agent, turn, record, response)
	if parked || err != nil {
		return err
	}
	return s.finishRun(ctx, job, turn, record, response)
}

// dispatcher asks other agents, of this server and of others, and hands their answers back.
type dispatcher struct {
	*core
	accept    *acceptor
	watch     *watcher
	replies   *replier
	approvals *approver
}

// askOthers returns the response to send, unless the turn waits for other agents now: then err is what the run returns.
func (s *dispatcher) askOthers(
	ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, record *runRecord, response normalized.Response,
) (out normalized.Response, parked bool, err error) {
	chain, ok := nextHop(agent, turn)
	if !ok {
		return s.strip(ctx, agent, turn, response), false, nil
	}

	calls := s.asked(agent, response)
	if len(calls) == 0 {
		if held, err := s.approvals.holds(ctx, agent, turn, response); held || err != nil { // the agents that it mentions would read it
			return response, false, err
		}
		calls, response = s.mentioned(agent, turn, response)
	}
	if len(calls) == 0 {
		return response, false, nil
	}

	now := time.Now().UTC().Truncate(time.Microsecond)
	for i := range calls {
		calls[i] = prepared(calls[i], i, agent, turn, chain, now)
	}

	err = s.askAll(ctx, job, turn, record, calls)
	switch {
	case !errors.Is(err, errTooMany):
		return response, true, err
	case calls[0].Combine:
		return s.joined(turn, response, unanswered(calls)), false, nil
	}

	return tooOften(turn), false, nil
}

// asked returns the calls that the agent asks for.
func (s *dispatcher) asked(agent agents.Entry, response normalized.Response) (calls []exchange.Dispatch) {
	for _, d := range response.Dispatch {
		calls = append(calls, exchange.Dispatch{To: s.canonical(agent, d.To), Parts: d.Parts})
	}
	return calls
}

// prepared fills in what all calls of one round share. The id of a call follows from its run and its place there: the agent that is
// called recognises the message of a run that is made once more.
func prepared(
	d exchange.Dispatch, place int, agent agents.Entry, turn exchange.TurnRecord, chain normalized.AgentChain, now time.Time,
) exchange.Dispatch {
	d.ID, d.TurnID, d.State, d.CreatedAt, d.UpdatedAt = exchange.DerivedID(turn.ID, "call", strconv.Itoa(turn.Attempt), strconv.Itoa(place)), turn.ID, exchange.DispatchPending, now, now
	d.Agent, d.From, d.Sender, d.Chain = turn.Agent, agent.Profile.Address, turn.Message.Sender, chain
	if d.To == "" { // the draft of a combined answer
		d.State = exchange.DispatchDone
	}
	return d
}

// conversationWith names the conversation with another agent: one for each person of each of our own conversations, so that the other
// agent keeps its context and people do not read each other's. What is open to everyone is one conversation for all, unless its sender
// was asked for something in private first.
func conversationWith(to string, turn exchange.TurnRecord) exchange.ConversationName {
	name := exchange.ConversationName{
		Channel: exchange.ChannelLocal, Agent: to, Owner: turn.Principal, Name: turn.Agent + " " + turn.ThreadID,
	}
	if turn.Audience.Open && !askedInPrivate(turn) {
		name.Owner = ""
	}
	return name
}

// converse puts a call into its conversation. One that began with an id of another form keeps it.
func (s *dispatcher) converse(ctx context.Context, turn exchange.TurnRecord, d *exchange.Dispatch) error {
	name := conversationWith(d.To, turn)
	earlier := earlierDispatchThread(name, turn)
	goesOn, err := s.options.Store.CallsIn(ctx, earlier)
	if d.ThreadID = name.ID(); goesOn {
		d.ThreadID = earlier
	}
	return err
}

// earlierDispatchThread is the id that the conversation has if it began before ids were made of names.
func earlierDispatchThread(name exchange.ConversationName, turn exchange.TurnRecord) string {
	sum := sha256.New()
	for _, text := range []string{turn.Agent, turn.ThreadID, name.Agent, name.Owner} {
		fmt.Fprintf(sum, "%d:%s", len(text), text)
	}
	return "dispatch-" + hex.EncodeToString(sum.Sum(nil))
}

// askAll parks the turn and stores the calls with their jobs.
func (s *dispatcher) askAll(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, calls []exchange.Dispatch) error {
	for i := range calls {
		if err := s.converse(ctx, turn, &calls[i]); err != nil {
			return err
		}
	}

	return s.replies.conclude(ctx, job, record, ending{
		turn: turn, state: exchange.StateWaiting, reason: exchange.WaitingDispatch, at: calls[0].CreatedAt,
		more: func(ctx context.Context, tx Tx) error { return insertCalls(ctx, tx, turn.ID, calls) },
	})
}

func insertCalls(ctx context.Context, tx Tx, turnID string, calls []exchange.Dispatch) error {
	number, err := lastNumber(ctx, tx, turnID, calls)
	if err != nil {
		return err
	}

	for _, d := range calls {
		if d.To != "" {
			number++
			d.Number = number
		}

		if err := tx.InsertDispatch(ctx, d); err != nil {
			return err
		}
		if d.To == "" {
			continue
		}
		if err := called(ctx, tx, d); err != nil {
			return err
		}
	}

	return nil
}

// called hands a call to the queue.
func called(ctx context.Context, tx Tx, d exchange.Dispatch) error {
	body, err := json.Marshal(map[string]string{"id": d.ID, "to": d.To})
	if err != nil {
		return err
	}

	event := exchange.Event{Kind: exchange.EventDispatchCalled, Body: body, At: d.CreatedAt}
	if err := tx.AppendEvents(ctx, d.TurnID, []exchange.Event{event}); err != nil {
		return err
	}

	return tx.Enqueue(ctx, DispatchJob(d))
}

// DispatchJob is the job that makes a call; its id is the call's.
func DispatchJob(d exchange.Dispatch) queue.NewJob {
	return queue.NewJob{
		ID: d.ID, Kind: DispatchKind, Partition: DispatchKind + " " + d.ThreadID, Payload: d.ID, Group: d.Agent, Member: d.To,
	}
}

// lastNumber counts what the turn has asked so far; errTooMany when the new calls are over a bound.
func lastNumber(ctx context.Context, tx Tx, turnID string, calls []exchange.Dispatch) (int, error) {
	earlier, err := tx.Dispatches(ctx, turnID)
	if err != nil {
		return 0, err
	}

	rounds := map[int64]bool{}
	number, fresh := 0, 0
	for _, d := range earlier {
		rounds[d.CreatedAt.UnixMicro()] = true
		number = max(number, d.Number)
	}

	for _, d := range calls {
		if d.To != "" {
			fresh++
		}
	}

	if len(rounds) >= maxRounds || number+fresh > maxCalls {
		return 0, errTooMany
	}

	return number, nil
}

// tooOften is the end of a turn that asks and asks.
func tooOften(turn exchange.TurnRecord) normalized.Response {
	return sentence(turn, "dispatch:limit", "Sorry, I asked other agents several times and still have no answer.")
}

// sentence is a failure in plain words.
func sentence(turn exchange.TurnRecord, code, words string) normalized.Response {
	return normalized.Response{
		InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID, Status: normalized.StatusFailed,
		Parts: []normalized.Part{normalized.Text(words)},
		Error: &normalized.ResponseError{Code: code, Message: words},
	}
}

// An answer may name agents in to and cc that its own way cannot reach: where nothing is relayed at all, every agent;
// everywhere, agents of this server. They are asked by the engine, with the question and the answer, and what they say is
// put below the answer: one reply, without a second run of the agent. The answer waits as the call with Number 0.

// mentioned takes the agents that are to be asked out of to and cc. The last call is the draft itself.
func (s *dispatcher) mentioned(
	agent agents.Entry, turn exchange.TurnRecord, response normalized.Response,
) (calls []exchange.Dispatch, out normalized.Response) {
	if response.Silent || len(response.To)+len(response.Cc) == 0 {
		return nil, response
	}

	everyone := turn.Message.RecipientCapabilities.MentionRelay.Kind == normalized.RelayNone
	var names []string
	take := func(list []string) (rest []string) {
		for _, text := range list {
			_, here, err := s.here(agent.Profile.Address, text)
			if !here && err == nil && !everyone {
				rest = append(rest, text)
				continue
			}
			if name := s.canonical(agent, text); !slices.Contains(names, name) && !s.takesPart(agent, turn, name) {
				names = append(names, name)
			}
		}
		return rest
	}

	response.To, response.Cc = take(response.To), take(response.Cc)
	if len(names) == 0 || response.Outcome() != normalized.StatusCompleted {
		return nil, response // a demand or a failure is for the asker alone
	}

	parts := briefing(agent, turn, response, s.options.Limits)
	for _, name := range names[:min(len(names), maxCalls)] {
		calls = append(calls, exchange.Dispatch{To: name, Parts: parts, Combine: true})
	}

	draft := response
	return append(calls, exchange.Dispatch{Combine: true, Response: &draft}), response
}

// takesPart reports whether the address is one of the two who talk here.
func (s *dispatcher) takesPart(agent agents.Entry, turn exchange.TurnRecord, name string) bool {
	return same(name, agent.Profile.Address) || turn.Message.Sender.Address.Names(name)
}

func same(a, b string) bool {
	left, errLeft := identity.ParseAddress(a)
	right, errRight := identity.ParseAddress(b)
	return errLeft == nil && errRight == nil && identity.CanonicalAgent(left) == identity.CanonicalAgent(right)
}

// briefing is what a mentioned agent gets to read: who asked what, who answered what.
func briefing(agent agents.Entry, turn exchange.TurnRecord, response normalized.Response, limits normalized.Limits) []normalized.Part {
	asker := turn.Message.Sender.Address.String()
	if turn.Message.Sender.Speaker() == nil {
		asker += " (unverified)"
	}
	half := limits
	half.Parts, half.Text = limits.Parts/2, limits.Text/2
	said := func(by string, parts []normalized.Part) []normalized.Part {
		whole := normalized.Response{Parts: append([]normalized.Part{normalized.Text(by + ":")}, sendable(parts)...)}
		return whole.Fit(half, normalized.Left{}).Parts
	}
	return append(said(asker, turn.Message.Parts), said(agent.Profile.Address, response.Parts)...)
}

// sendable are the parts that say something to others: no tool calls, no demands, nothing unknown.
func sendable(parts []normalized.Part) (said []normalized.Part) {
	for _, p := range parts {
		switch p.Kind {
		case normalized.PartText, normalized.PartFile, normalized.PartLink, normalized.PartArtifact:
			said = append(said, p)
		}
	}
	return said
}

// combined returns the one answer of a turn whose mentioned agents have all been asked. A job whose id is that of the turn
// is its first: it has asked no agent yet.
func (s *dispatcher) combined(ctx context.Context, job queue.Job, turn exchange.TurnRecord) (response normalized.Response, ok bool, err error) {
	if job.ID == turn.ID {
		return response, false, nil
	}

	calls, err := s.options.Store.Dispatches(ctx, turn.ID)
	if err != nil {
		return response, false, err
	}

	var answers []exchange.Dispatch
	for _, d := range calls {
		switch {
		case d.Number == 0 && d.Response != nil:
			response, ok = *d.Response, true
		case d.Combine:
			answers = append(answers, d)
		}
	}

	if !ok {
		return response, false, nil
	}

	return s.joined(turn, response, answers), true, nil
}

// joined puts the answers below the draft, each one whole or with a line that it does not fit. An answer of which not even that fits is
// counted at the end.
func (s *dispatcher) joined(turn exchange.TurnRecord, draft normalized.Response, answers []exchange.Dispatch) normalized.Response {
	left := normalized.Left{}
	for _, d := range answers {
		if d.Number == 0 && d.To == "" {
			continue
		}
		parts := said(d)
		longer, fits := s.longer(turn, draft, parts)
		if !fits {
			longer, fits = s.longer(turn, draft, []normalized.Part{remark("The answer of %s does not fit in here.", d.To)})
		}
		if !fits {
			left.Parts += len(parts)
			continue
		}
		draft = longer
	}
	return draft.Fit(s.options.Limits, left)
}

// longer returns a response with more parts, and false when that is over the limits.
func (s *dispatcher) longer(turn exchange.TurnRecord, draft normalized.Response, more []normalized.Part) (normalized.Response, bool) {
	draft.Parts = slices.Concat(draft.Parts, more)
	return draft, normalized.ValidateResponse(draft, turn.Message, s.options.Limits) == nil
}

// said writes one answer down. A demand of another agent is told in its own words and is never a success.
func said(d exchange.Dispatch) []normalized.Part {
	answer := d.Response
	switch {
	case answer == nil, answer.Error != nil && answer.Error.Code == codeUnreachable:
		return []normalized.Part{remark("%s could not be reached.", d.To)}
	case answer.Silent:
		return []normalized.Part{remark("%s did not answer.", d.To)}
	case answer.Error != nil:
		return []normalized.Part{remark("%s could not help: %s", d.To, answer.Error.Message)}
	}

	parts := sendable(answer.Parts)
	if policy := answer.Policy(); policy != nil {
		parts = append(parts, remark("%s asks for something first: %s", d.To, policy.Message))
	}
	if len(parts) == 0 {
		return []normalized.Part{remark("%s did not answer.", d.To)}
	}

	return append([]normalized.Part{normalized.Markdown("**" + d.To + "**:")}, parts...)
}

func remark(format string, arguments ...any) normalized.Part {
	return normalized.Text("(" + fmt.Sprintf(format, arguments...) + ")")
}

// unanswered are calls that were never made.
func unanswered(calls []exchange.Dispatch) []exchange.Dispatch {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].Response = nil
	}
	return calls
}
