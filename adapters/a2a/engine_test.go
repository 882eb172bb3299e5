package a2a

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// engine is a small real engine in memory: it accepts, dedupes, runs an agent a turn at a time and keeps events.
type engine struct {
	blobs normalized.Keeper // where files of messages go
	*exchangetest.Documents
	*exchangetest.Tokens

	agents exchangetest.Agents
	agent  func(ctx context.Context, run *run) normalized.Response

	mu       sync.Mutex
	turns    map[string]*exchange.TurnRecord
	events   map[string][]exchange.Event
	keys     map[string]string // natural key → turn id
	cancels  map[string]context.CancelFunc
	changed  chan struct{}
	running  sync.WaitGroup
	receives int                // turns accepted as new
	inbounds []exchange.Inbound // as they came, repeats among them
	refusal  error              // of the door
	onWait   func()             // called by each Wait; may be nil
	down     error              // every call fails with it

	nextReceive func() error // takes the place of the next Receive; may be nil
}

// run is what the scripted agent sees of its turn.
type run struct {
	engine *engine
	turn   exchange.TurnRecord
}

func newEngine(names ...string) *engine {
	e := &engine{
		turns: map[string]*exchange.TurnRecord{}, events: map[string][]exchange.Event{}, keys: map[string]string{},
		Documents: exchangetest.NewDocuments(), Tokens: exchangetest.NewTokens(nil), cancels: map[string]context.CancelFunc{},
		changed: make(chan struct{}), agent: echo,
	}
	for _, name := range names {
		e.agents = append(e.agents, exchange.AgentProfile{Name: name, Address: "@" + name + "@agents.test"})
	}
	return e
}

func echo(_ context.Context, r *run) normalized.Response {
	return normalized.Response{InReplyTo: r.turn.Message.ID, Parts: r.turn.Message.Parts}
}

// hold lets an agent work until the test lets it go on, at the latest until the run or the test ends.
func hold(ctx context.Context, gate <-chan struct{}) {
	select {
	case <-gate:
	case <-ctx.Done():
	}
}

// say streams text.
func (r *run) say(text string) { r.delta(normalized.Delta{Kind: normalized.DeltaText, Text: text}) }

func (r *run) delta(delta normalized.Delta) {
	body, _ := json.Marshal(delta)
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	r.engine.append(r.turn.ID, exchange.EventDelta, body)
}

// restart is what a crash in the middle of a run leaves.
func (r *run) restart() {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	r.engine.append(r.turn.ID, exchange.EventRestarted, nil)
}

// park puts the turn into a state in which it waits.
func (r *run) park(state, reason string, response *normalized.Response) {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	r.engine.turns[r.turn.ID].Response = response
	if response != nil {
		r.engine.turns[r.turn.ID].ReplyID = newID()
	}
	r.engine.move(r.turn.ID, state, reason)
}

// demand parks the turn with a demand until it is resolved, and reports whether that happened.
func (r *run) demand(ctx context.Context, part policypart.Part) bool {
	response := normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &part}}}.Answering(r.turn.Message)
	r.park(exchange.StateWaiting, part.Kind, &response)
	for {
		turn, changed, _ := r.engine.look(r.turn.ID)
		if turn.State == exchange.StateAccepted {
			r.engine.mu.Lock()
			r.engine.move(r.turn.ID, exchange.StateRunning, "")
			r.engine.mu.Unlock()
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// resume is what a decision on the page of a demand does.
func (e *engine) resume(id string, resolution policypart.Resolution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turns[id].Message.PolicyResolution = &resolution
	e.move(id, exchange.StateAccepted, "resumed")
}

// newestTurn is the id of the turn that came last.
func (e *engine) newestTurn() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Max(slices.Collect(maps.Keys(e.turns)))
}

func (e *engine) last() exchange.Inbound {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inbounds[len(e.inbounds)-1]
}

func (e *engine) append(id, kind string, body json.RawMessage) {
	list := e.events[id]
	e.events[id] = append(list, exchange.Event{TurnID: id, Seq: int64(len(list) + 1), Kind: kind, Body: body, At: time.Now()})
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *engine) move(id, state, reason string) {
	turn := e.turns[id]
	turn.State, turn.Reason, turn.UpdatedAt = state, reason, time.Now()
	e.append(id, "turn."+state, nil)
	e.events[id][len(e.events[id])-1].At = turn.UpdatedAt
}

func (e *engine) Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error) {
	if err := normalized.Validate(in.Message, normalized.DefaultLimits()); err != nil {
		return exchange.Receipt{}, err
	}
	if fails := e.nextReceive; fails != nil {
		e.nextReceive = nil
		return exchange.Receipt{}, fails()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inbounds = append(e.inbounds, in)
	if e.down != nil || e.refusal != nil {
		return exchange.Receipt{}, cmp.Or(e.down, e.refusal)
	}
	key := strings.Join([]string{in.Message.Recipient, in.Message.ReceivedVia, in.Message.Sender.Principal(), in.Message.Sender.Carrier(), in.Message.ID}, "\n")
	if id, known := e.keys[key]; known {
		stored := e.turns[id]
		return exchange.Receipt{TurnID: id, State: stored.State, Reference: stored.Reference}, nil
	}
	if parked := e.turns[in.Continues]; parked != nil && parked.State != exchange.StateWaiting {
		return exchange.Receipt{}, fault.New(fault.Conflict, "the message that this one continues does not wait any more")
	}
	for _, content := range in.Files {
		if _, _, err := e.blobs.Put(ctx, bytes.NewReader(content)); err != nil {
			return exchange.Receipt{}, err
		}
	}
	if in.Claim != nil {
		instead, inserted, err := e.PutIfAbsent(ctx, in.Claim.Namespace, in.Claim.Key, in.Claim.Value, in.Claim.Expires)
		if err != nil || !inserted && string(instead) != string(in.Claim.Value) {
			return exchange.Receipt{Claimed: instead}, err
		}
	}
	turn := e.insert(in)
	if in.Continues != "" {
		e.move(in.Continues, exchange.StateCancelled, "taken up")
		e.cancels[in.Continues]()
	}
	e.keys[key] = turn.ID
	e.receives++
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.cancels[turn.ID] = cancel
	e.running.Add(1)
	go e.run(runCtx, *turn)
	return exchange.Receipt{TurnID: turn.ID, New: true, State: turn.State, Reference: turn.Reference}, nil
}

func (e *engine) insert(in exchange.Inbound) *exchange.TurnRecord {
	name, _, _ := strings.Cut(strings.TrimPrefix(in.Message.Recipient, "@"), "@")
	turn := &exchange.TurnRecord{
		ID: newID(), Agent: name, Principal: in.Message.Sender.Principal(), Carrier: in.Message.Sender.Carrier(), ThreadID: in.Message.ThreadID,
		Conversation: in.Conversation,
		Reference:    in.Reference, Message: in.Message, Route: in.Route, AcceptedAt: time.Now(),
	}
	e.turns[turn.ID] = turn
	e.move(turn.ID, exchange.StateAccepted, "")
	return turn
}

func (e *engine) run(ctx context.Context, turn exchange.TurnRecord) {
	defer e.running.Done()
	e.mu.Lock()
	if e.turns[turn.ID].State == exchange.StateAccepted {
		e.move(turn.ID, exchange.StateRunning, "")
	}
	e.mu.Unlock()
	response := e.agent(ctx, &run{engine: e, turn: turn})
	e.mu.Lock()
	defer e.mu.Unlock()
	stored := e.turns[turn.ID]
	if exchange.Terminal(stored.State) {
		return
	}
	stored.ReplyID, stored.Response = newID(), &response
	switch {
	case response.Silent:
		e.move(turn.ID, exchange.StateSilent, "")
	case response.Status == normalized.StatusFailed:
		e.move(turn.ID, exchange.StateFailed, "")
	default:
		e.move(turn.ID, exchange.StateAnswered, "")
	}
}

func (e *engine) Agents() []exchange.AgentProfile { return e.agents }

func (e *engine) Agent(name string) (exchange.AgentProfile, bool) { return e.agents.Agent(name) }

func (e *engine) Turns(_ context.Context, f exchange.TurnFilter) ([]exchange.TurnRecord, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down != nil {
		return nil, e.down
	}
	list := e.selectTurns(f)
	if len(list) > f.Limit {
		list = list[:f.Limit]
	}
	return list, nil
}

func (e *engine) CountTurns(_ context.Context, f exchange.TurnFilter) (int64, error) {
	f.Before = ""
	e.mu.Lock()
	defer e.mu.Unlock()
	return int64(len(e.selectTurns(f))), e.down
}

func (e *engine) Events(_ context.Context, id string, after int64, limit int) ([]exchange.Event, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rest := e.events[id][min(after, int64(len(e.events[id]))):]
	return slices.Clone(rest[:min(limit, len(rest))]), e.down
}

func (e *engine) selectTurns(f exchange.TurnFilter) []exchange.TurnRecord {
	list := []exchange.TurnRecord{}
	for _, turn := range e.turns {
		if matches(f, turn) && (!f.Latest || e.newest(turn)) && (f.Standing == "" || f.Standing == e.standing(turn)) {
			list = append(list, *turn)
		}
	}
	slices.SortFunc(list, func(x, y exchange.TurnRecord) int {
		return cmp.Or(cmp.Compare(y.UpdatedAt.UnixMicro(), x.UpdatedAt.UnixMicro()), strings.Compare(y.ID, x.ID))
	})
	return list
}

func matches(f exchange.TurnFilter, turn *exchange.TurnRecord) bool {
	before, id, _ := strings.Cut(f.Before, ".")
	micros, _ := strconv.ParseInt(before, 10, 64)
	updated := turn.UpdatedAt.UnixMicro()
	return (f.Agent == "" || f.Agent == turn.Agent) && (f.Carrier == "" || f.Carrier == turn.BroughtBy()) &&
		(f.ThreadID == "" || f.ThreadID == turn.ThreadID || f.Conversation != "" && f.Conversation == turn.Conversation) &&
		(f.MessageID == "" || f.MessageID == turn.Message.ID) && (f.Reference == "" || f.Reference == turn.Reference) &&
		(f.ReceivedVia == "" || f.ReceivedVia == turn.Message.ReceivedVia) &&
		(len(f.States) == 0 || slices.Contains(f.States, turn.State)) &&
		(f.UpdatedAfter.IsZero() || turn.UpdatedAt.After(f.UpdatedAfter)) &&
		(f.Before == "" || updated < micros || updated == micros && turn.ID < id)
}

func (e *engine) standing(turn *exchange.TurnRecord) string {
	if claim, _, _ := e.Get(context.Background(), claimSpace, turn.ID); strings.HasPrefix(string(claim), claimCancel) {
		return exchange.StandingCancelled
	}
	return exchange.StandingOf(*turn)
}

func (e *engine) newest(turn *exchange.TurnRecord) bool {
	for _, other := range e.turns {
		if other.Reference == turn.Reference && other.BroughtBy() == turn.BroughtBy() && other.Agent == turn.Agent && other.ID > turn.ID {
			return false
		}
	}
	return true
}

func (e *engine) Wait(ctx context.Context, id string) (exchange.TurnRecord, error) {
	if e.onWait != nil {
		e.onWait()
	}
	for {
		turn, changed, err := e.look(id)
		if err != nil || exchange.Settled(turn.State) {
			return turn, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return exchange.TurnRecord{}, ctx.Err()
		}
	}
}

func (e *engine) look(id string) (exchange.TurnRecord, <-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	turn, known := e.turns[id]
	if !known {
		return exchange.TurnRecord{}, nil, fault.New(fault.NotFound, "no such turn")
	}
	return *turn, e.changed, nil
}

func (e *engine) Cancel(_ context.Context, id, reason string) (exchange.TurnRecord, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	turn := e.turns[id]
	if exchange.Terminal(turn.State) {
		return *turn, fault.New(fault.Conflict, "the turn ended")
	}
	e.move(id, exchange.StateCancelled, reason)
	e.cancels[id]()
	return *turn, nil
}

func (e *engine) GiveUp(_ context.Context, id string, claim exchange.Claim, reason string, at time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !exchange.Terminal(e.turns[id].State) {
		return fault.New(fault.Conflict, "the turn has not ended")
	}
	if _, inserted, _ := e.PutIfAbsent(context.Background(), claim.Namespace, claim.Key, claim.Value, time.Time{}); !inserted {
		return fault.New(fault.Conflict, "the turn goes on already")
	}
	e.move(id, e.turns[id].State, reason)
	e.turns[id].UpdatedAt = at
	return nil
}

// stop ends all runs, as far as their agents listen.
func (e *engine) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cancel := range e.cancels {
		cancel()
	}
}

func (e *engine) Follow(ctx context.Context, id string, after int64) iter.Seq2[exchange.Event, error] {
	return func(yield func(exchange.Event, error) bool) {
		for {
			e.mu.Lock()
			events, changed := slices.Clone(e.events[id][after:]), e.changed
			e.mu.Unlock()
			for _, event := range events {
				after = event.Seq
				state, _ := strings.CutPrefix(event.Kind, "turn.")
				if !yield(event, nil) || exchange.Terminal(state) {
					return
				}
			}
			if len(events) > 0 {
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(exchange.Event{}, ctx.Err())
				return
			}
		}
	}
}

// fail lets every call fail with the error; nil ends that.
func (e *engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = err
	e.Documents.Fail(err)
	e.Tokens.Fail(err)
}

// token mints a token; agent limits it.
func (e *engine) token(name, agent string) string {
	token, _ := bearer.Mint()
	e.Tokens.Put(token, exchange.Token{ID: newID(), Name: name, Agent: agent, CreatedAt: time.Now()})
	return token
}
