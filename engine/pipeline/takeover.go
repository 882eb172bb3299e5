package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// TakeoverTx is what a transaction does about operators who write as an agent.
type TakeoverTx interface {
	// BeginTakeover stores a takeover unless the conversation has an open one; it returns the open one, and whether it is new.
	BeginTakeover(ctx context.Context, begin exchange.Takeover) (open exchange.Takeover, began bool, err error)
	// HoldTakeover returns the open takeover of a conversation, which stays open until the commit.
	HoldTakeover(ctx context.Context, agent, threadID string) (open exchange.Takeover, found bool, err error)
	// PutTakeover writes holder, begin and last touch of an open takeover.
	PutTakeover(ctx context.Context, open exchange.Takeover) error
	// EndTakeover ends an open takeover and reports whether it was open.
	EndTakeover(ctx context.Context, ended exchange.Takeover) (bool, error)
	// TellOfTakeover makes the turn the one whose agent is told of the end, and reports whether it is: a takeover has one.
	TellOfTakeover(ctx context.Context, id, turnID string) (bool, error)
	// ParkThread lets all turns of a conversation that an agent runs, or is to run, wait for an operator, and returns them.
	ParkThread(ctx context.Context, agent, threadID string, at time.Time) (parked []string, err error)
	// WriteAnswer moves a turn by the transition Written, if its row is still as it was read, and reports whether it did.
	WriteAnswer(ctx context.Context, turn exchange.TurnRecord, written exchange.WrittenAnswer) (bool, error)
	// SpendAnswer forgets the words of a written answer that has become the turn's reply.
	SpendAnswer(ctx context.Context, turn exchange.TurnRecord) error
	// PutDraft keeps what the agent said for a turn that waits for an operator, and reports whether it waits so.
	PutDraft(ctx context.Context, draft exchange.Reply) (bool, error)
	// ClaimAnswer keeps that the answer with the key is the turn's; it returns the turn of the one that has the key, empty for none.
	ClaimAnswer(ctx context.Context, key, turnID string, until time.Time) (instead string, err error)
}

// TakeoverReader finds what operators have taken over.
type TakeoverReader interface {
	// Takeover returns the newest takeover of a conversation, which may have ended.
	Takeover(ctx context.Context, agent, threadID string) (exchange.Takeover, bool, error)
	// WaitingForOperator returns turns of a conversation that wait for an operator, oldest first.
	WaitingForOperator(ctx context.Context, agent, threadID string, limit int) ([]string, error)
	// IdleTakeovers returns open takeovers in which no operator did anything since the instant, in order of their ids, after the given one.
	IdleTakeovers(ctx context.Context, before time.Time, after string, limit int) ([]exchange.Takeover, error)
	// LeftBehind returns turns that wait for an operator although no one has their conversation, in order of their ids, after the given one.
	LeftBehind(ctx context.Context, after string, limit int) ([]LeftBehind, error)
	// Reply returns a reply with its native id; fault.NotFound when there is none.
	Reply(ctx context.Context, id string) (exchange.Reply, string, error)
}

// LeftBehind is a turn that a process left when it died in the middle of handing a conversation back.
type LeftBehind struct {
	TurnID  string
	Dropped bool // it was to get no answer
}

const (
	// handBackPage is how many turns are gone through together when a conversation is handed back.
	handBackPage = 100
	// maxSaid bounds the answers to one message.
	maxSaid = 20
	// maxWrittenText bounds what an operator writes, as texts of messages are bounded.
	maxWrittenText = 1 << 20
	// answerKeyLife is how long a repeat of an operator's answer is recognised.
	answerKeyLife = 7 * 24 * time.Hour
	// maxAnswerKey bounds the key of one, in bytes.
	maxAnswerKey = 256
	// takeoversEvery is how often it is looked for takeovers that have ended by themselves.
	takeoversEvery = 30 * time.Second
)

// reasonTakenOver is why a run stops whose conversation an operator has.
const reasonTakenOver = "an operator has taken the conversation over"

// reasonDropped is the reason of a turn that waited for an operator, who wants no answer to it.
const reasonDropped = "closed without an answer by "

// takeovers lets operators write as the agent in a conversation: the agent is silent meanwhile, and is told afterwards.
type takeovers struct {
	*core
	cancels *canceller
}

func waitsForOperator(turn exchange.TurnRecord) bool {
	return turn.State == exchange.StateWaiting && turn.Reason == exchange.WaitingOperator
}

// parkThread lets the turns of a conversation wait for an operator, and keeps the notes of those whose agent has begun.
func parkThread(ctx context.Context, tx Tx, newest exchange.TurnRecord, at time.Time) ([]string, error) {
	parked, err := tx.ParkThread(ctx, newest.Agent, newest.ThreadID, at)
	for _, id := range parked {
		err = errors.Join(err, keepMemory(ctx, tx, id))
	}
	return parked, err
}

// TakeOver gives a conversation to an operator, for whom its current and later messages wait. A run in progress is told and may finish its
// turn; its answer becomes a draft. With force the conversation is taken from another operator. A second call by the same operator changes
// nothing. NotFound without such a conversation, Conflict if another operator has it.
func (s *takeovers) TakeOver(ctx context.Context, agent, threadID, by string, force bool) (exchange.Takeover, error) {
	newest, err := s.newestOf(ctx, agent, threadID)
	if err != nil {
		return exchange.Takeover{}, err
	}

	now := time.Now().UTC().Truncate(time.Millisecond)
	var open exchange.Takeover
	var parked []string
	err = s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		var began bool
		open, began, err = tx.BeginTakeover(ctx, exchange.Takeover{ID: newID(), Agent: newest.Agent, ThreadID: threadID, Holder: by, Since: now, TouchedAt: now})
		if err != nil {
			return err
		}

		before := open.Holder
		switch {
		case !began && before == by:
		case !began && !force:
			return heldBy(open)
		default:
			if err := s.noteTaken(ctx, tx, newest, by, before, began); err != nil {
				return err
			}
			open.Holder, open.Since = by, now
		}

		open.TouchedAt = now
		if err := tx.PutTakeover(ctx, open); err != nil {
			return err
		}
		parked, err = parkThread(ctx, tx, newest, now)
		return err
	})
	if err != nil {
		return open, orUnavailable("take conversation over", err)
	}

	// What another transaction stored while this one committed was not seen by it, nor did it see this one.
	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		late, err := parkThread(ctx, tx, newest, time.Now())
		parked = append(parked, late...)
		return err
	})
	if err != nil {
		return open, orUnavailable("take conversation over", err)
	}

	for _, id := range parked {
		s.broker.interrupt(id, agents.InterruptTakeover, reasonTakenOver)
		s.broker.forget(id) // its run reads the row
		s.broker.notify(id)
	}
	waiting, err := s.options.Store.WaitingForOperator(ctx, newest.Agent, threadID, handBackPage)
	open.Waiting = len(waiting)
	return open, err
}

func heldBy(open exchange.Takeover) error {
	return fault.Newf(fault.Conflict, "%s has had this conversation since %s; to take it from them: force", open.Holder, open.Since.UTC().Format(time.RFC3339))
}

// orUnavailable leaves what an operator may be told as it is.
func orUnavailable(operation string, err error) error {
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Malformed) {
		return err
	}
	return unavailable(operation, err)
}

// newestOf returns the newest message of a conversation.
func (s *takeovers) newestOf(ctx context.Context, agent, threadID string) (exchange.TurnRecord, error) {
	turns, err := s.options.Store.Turns(ctx, exchange.TurnFilter{Agent: agent, ThreadID: threadID, ByArrival: true, Limit: 1})
	if err != nil {
		return exchange.TurnRecord{}, unavailable("find conversation", err)
	}
	if len(turns) == 0 {
		return exchange.TurnRecord{}, fault.Newf(fault.NotFound, "%s has no conversation %s", agent, threadID)
	}
	return turns[0], nil
}

// noteTaken writes who took a conversation from whom: to its newest message, which both of them see, and to the record of decisions.
func (s *takeovers) noteTaken(ctx context.Context, tx Tx, newest exchange.TurnRecord, by, from string, began bool) error {
	code, detail := exchange.AuditTakenOver, "by "+by
	said := map[string]string{"by": by}
	if !began {
		code, detail, said["from"] = exchange.AuditTaken, "by "+by+" from "+from, from
	}
	return s.note(ctx, tx, newest, exchange.EventTakenOver, said, code, detail)
}

func (s *takeovers) note(ctx context.Context, tx Tx, turn exchange.TurnRecord, kind string, said any, code, detail string) error {
	body, err := json.Marshal(said)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if err := tx.AppendEvents(ctx, turn.ID, []exchange.Event{{Kind: kind, Body: body, At: time.Now()}}); err != nil {
		return err
	}
	record := auditOf(turn, code, clip.Bytes(detail, maxDetail))
	record.Principal = "" // the sender did nothing
	return tx.Audit(ctx, record)
}

// HandBack says how a conversation is handed back to its agent.
type HandBack struct {
	Note  string // for the agent in its next turn; the asker does not see it
	Drop  bool   // what waits gets no answer; otherwise the agent answers it
	Force bool   // although another operator has it
}

// HandBack ends a takeover. NotFound when no operator has the conversation, Conflict when another one has it.
func (s *takeovers) HandBack(ctx context.Context, agent, threadID, by string, how HandBack) (exchange.Takeover, error) {
	if len(how.Note) > agents.MaxHandoverNote || !utf8.ValidString(how.Note) {
		return exchange.Takeover{}, fault.InField("note", fmt.Sprintf("must be at most %d bytes of text", agents.MaxHandoverNote))
	}
	newest, err := s.newestOf(ctx, agent, threadID)
	if err != nil {
		return exchange.Takeover{}, err
	}

	var ended exchange.Takeover
	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		open, found, err := tx.HoldTakeover(ctx, newest.Agent, threadID)
		switch {
		case err != nil:
			return err
		case !found:
			return fault.New(fault.NotFound, "no operator has this conversation; see: inbox takeover list")
		case open.Holder != by && !how.Force:
			return heldBy(open)
		}

		ended = open
		ended.EndedAt, ended.EndedBy, ended.Note, ended.Dropped = time.Now().UTC().Truncate(time.Millisecond), by, how.Note, how.Drop
		if _, err := tx.EndTakeover(ctx, ended); err != nil {
			return err
		}
		said := struct {
			By      string `json:"by"`
			Noted   bool   `json:"noted,omitempty"` // there is a note, which is in the row of the takeover
			Dropped bool   `json:"dropped,omitempty"`
		}{by, how.Note != "", how.Drop}
		return s.note(ctx, tx, newest, exchange.EventHandedBack, said, exchange.AuditHandedBack, "by "+by)
	})
	if err != nil {
		return ended, orUnavailable("hand conversation back", err)
	}

	return ended, s.letGo(ctx, ended, by)
}

// letGo lets what waited for the operator run, or closes it. Should the process die in the middle EndTakeovers does the rest.
func (s *takeovers) letGo(ctx context.Context, ended exchange.Takeover, by string) error {
	for {
		waiting, err := s.options.Store.WaitingForOperator(ctx, ended.Agent, ended.ThreadID, handBackPage)
		if err != nil {
			return unavailable("hand conversation back", err)
		}
		if now, _, err := s.options.Store.Takeover(ctx, ended.Agent, ended.ThreadID); err != nil || now.ID != ended.ID {
			return err // taken over again meanwhile
		}

		for _, id := range waiting {
			if err := s.release(ctx, id, by, ended.Dropped); err != nil {
				return err
			}
		}
		if len(waiting) < handBackPage {
			return nil
		}
	}
}

// release ends the waiting of one turn.
func (s *takeovers) release(ctx context.Context, turnID, by string, drop bool) error {
	if drop {
		_, err := s.cancels.Cancel(ctx, turnID, reasonDropped+by)
		if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}

	turn, err := s.options.Store.Turn(ctx, turnID)
	if err != nil || !waitsForOperator(turn) {
		return err
	}
	moved := false
	err = s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		if moved, err = tx.ResumeTurn(ctx, turnID, nil, nil, time.Now()); err != nil || !moved {
			return err
		}
		return tx.Enqueue(ctx, resumedJob(turn))
	})
	if err != nil {
		return unavailable("hand conversation back", err)
	}
	if moved {
		s.logState(ctx, turn, exchange.StateAccepted, "handed back by "+by)
		s.broker.notify(turnID)
	}
	return nil
}

// byServer is who ends a takeover in which no operator did anything for too long.
const byServer = "server"

// EndTakeovers hands conversations back that were left, so that no message waits for ever, and does what a process did not that died
// while it handed one back, until ctx is done. Idle returns after how long without an act of an operator; 0 = never. Any number of nodes
// may run it.
func (s *takeovers) EndTakeovers(ctx context.Context, idle func() time.Duration) error {
	ticker := time.NewTicker(takeoversEvery)
	defer ticker.Stop()
	for {
		if err := s.EndTakeoversNow(ctx, idle()); err != nil && ctx.Err() == nil {
			s.options.Logger.WarnContext(ctx, "conversations that operators have left are handed back later", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// EndTakeoversNow is one round of EndTakeovers. A conversation that cannot be handed back does not keep the others.
func (s *takeovers) EndTakeoversNow(ctx context.Context, idle time.Duration) error {
	err := eachPage(func(after string) (next string, err error) {
		left, err := s.options.Store.LeftBehind(ctx, after, handBackPage)
		for _, one := range left {
			next, err = one.TurnID, errors.Join(err, s.release(ctx, one.TurnID, byServer, one.Dropped))
		}
		return next, err
	})
	if idle <= 0 {
		return err
	}

	before := time.Now().Add(-idle)
	return errors.Join(err, eachPage(func(after string) (next string, err error) {
		old, err := s.options.Store.IdleTakeovers(ctx, before, after, handBackPage)
		for _, one := range old {
			next, err = one.ID, errors.Join(err, s.handBackIdle(ctx, one))
		}
		return next, err
	}))
}

// eachPage does page after page until one is empty: work returns the id of its last row, after which the next one begins. A database that is
// down ends it.
func eachPage(work func(after string) (next string, err error)) error {
	var failures []error
	for after := ""; ; {
		next, err := work(after)
		failures = append(failures, err)
		if next == "" || fault.Is(err, fault.Unavailable) {
			return errors.Join(failures...)
		}
		after = next
	}
}

func (s *takeovers) handBackIdle(ctx context.Context, idle exchange.Takeover) error {
	_, err := s.HandBack(ctx, idle.Agent, idle.ThreadID, byServer, HandBack{Force: true})
	if fault.Is(err, fault.NotFound) { // another node did
		return nil
	}
	if err == nil {
		s.options.Logger.WarnContext(ctx, "a conversation is handed back to its agent, because no operator did anything in it for too long",
			"agent", idle.Agent, "thread", clip.Bytes(idle.ThreadID, maxLogged), "holder", idle.Holder)
	}
	return err
}

// OperatorAnswer is what an operator writes as an agent.
type OperatorAnswer struct {
	TurnID          string // the message that is answered; empty = of the conversation the newest that waits for an operator, else the newest
	Agent, ThreadID string // the conversation, without TurnID
	By              string
	Key             string // of the request: a repeat with the same key is the same answer; empty = it is another one
	Text            string
	MIME            string // text/plain, or text/markdown; empty = text/plain
}

// errChanged rolls back an answer to a turn that changed meanwhile.
var errChanged = errors.New("the message changed meanwhile")

// WriteAnswer answers a message as its agent, and returns its id. The answer leaves with the next run, exactly as one of the agent: a
// message has one, unless the operator writes a further one to a message whose answer left as a message of its own. NotFound without such
// a message, Conflict when it can have no answer any more or when another operator has its conversation, Malformed for the text.
func (s *takeovers) WriteAnswer(ctx context.Context, a OperatorAnswer) (turnID string, err error) {
	parts, err := writtenParts(a)
	if err != nil {
		return "", err
	}

	for range storeTries {
		turn, err := s.toAnswer(ctx, a)
		if err != nil {
			return "", err
		}
		turnID, err = s.storeAnswer(ctx, turn, a, parts)
		if !errors.Is(err, errChanged) {
			return turnID, err
		}
	}
	return "", fault.New(fault.Conflict, "the message changes all the time; look at it and answer again")
}

func writtenParts(a OperatorAnswer) ([]normalized.Part, error) {
	switch {
	case len(a.Text) > maxWrittenText:
		return nil, fault.Newf(fault.TooLarge, "an answer has at most %d bytes", maxWrittenText)
	case len(a.Key) > maxAnswerKey:
		return nil, fault.InField("key", fmt.Sprintf("must be at most %d bytes", maxAnswerKey))
	}
	part := normalized.Text(a.Text)
	if part.MIME, _ = normalized.TextMIME(cmp.Or(a.MIME, normalized.MIMEPlain)); part.MIME != normalized.MIMEPlain && part.MIME != normalized.MIMEMarkdown {
		return nil, fault.InField("mime", `must be "text/plain" or "text/markdown"`)
	}
	return []normalized.Part{part}, nil
}

// toAnswer finds the message that an answer is for.
func (s *takeovers) toAnswer(ctx context.Context, a OperatorAnswer) (turn exchange.TurnRecord, err error) {
	id := a.TurnID
	if id == "" {
		newest, err := s.newestOf(ctx, a.Agent, a.ThreadID)
		if err != nil {
			return turn, err
		}
		waiting, err := s.options.Store.WaitingForOperator(ctx, newest.Agent, a.ThreadID, exchange.MaxWaitingOfThread)
		if err != nil {
			return turn, unavailable("find message", err)
		}
		if id = newest.ID; len(waiting) > 0 {
			id = waiting[len(waiting)-1]
		}
	}
	return s.options.Store.Turn(ctx, id)
}

// mayAnswer refuses what can have no answer of an operator.
func (s *takeovers) mayAnswer(ctx context.Context, turn exchange.TurnRecord) error {
	switch turn.State {
	case exchange.StateCancelled, exchange.StateRefused:
		return fault.Newf(fault.Conflict, "the message is %s and gets no answer", turn.State)
	case exchange.StateAnswered, exchange.StateFailed, exchange.StateSilent:
		open, err := s.cancels.canRepeat(ctx, turn)
		if err != nil {
			return err
		}
		sent := open && turn.State != exchange.StateAnswered
		if open && !sent {
			if sent, err = s.options.Store.Sent(ctx, turn.ID, turn.ReplyID); err != nil {
				return unavailable("read deliveries", err)
			}
		}
		if !sent {
			return fault.New(fault.Conflict, "its sender has fetched what was said as the end of the message; answer the next one")
		}
	}

	switch {
	case len(turn.Said) >= maxSaid:
		return fault.Newf(fault.Conflict, "the message has had %d answers", maxSaid+1)
	case len(turn.Message.Parts) == 0:
		return fault.New(fault.Conflict, "the message was withdrawn or has reached its end")
	}
	return nil
}

// storeAnswer keeps the answer with the job that sends it.
func (s *takeovers) storeAnswer(ctx context.Context, turn exchange.TurnRecord, a OperatorAnswer, parts []normalized.Part) (turnID string, err error) {
	refused := s.mayAnswer(ctx, turn)
	if refused != nil && !fault.Is(refused, fault.Conflict) {
		return "", refused
	}
	written := exchange.WrittenAnswer{By: a.By, At: time.Now().UTC().Truncate(time.Millisecond), Parts: parts}
	response := normalized.Response{Parts: parts}.Answering(turn.Message)
	response.Clean()
	if refused == nil {
		if err := normalized.ValidateResponse(response, turn.Message, s.options.Limits); err != nil {
			return "", err
		}
		written.Parts = response.Parts
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		turnID = turn.ID
		if a.Key != "" {
			instead, err := tx.ClaimAnswer(ctx, a.By+"\n"+turn.Agent+"\n"+turn.ThreadID+"\n"+a.Key, turn.ID, written.At.Add(answerKeyLife))
			if err != nil || instead != "" {
				turnID = instead
				return err
			}
		}
		if refused != nil { // only now: a repeat is no further answer
			return refused
		}

		open, found, err := tx.HoldTakeover(ctx, turn.Agent, turn.ThreadID)
		switch {
		case err != nil:
			return err
		case found && open.Holder != a.By:
			return heldBy(open)
		case found:
			open.TouchedAt = written.At
			if err := tx.PutTakeover(ctx, open); err != nil {
				return err
			}
		}

		moved, err := tx.WriteAnswer(ctx, turn, written)
		if err != nil || !moved {
			return cmp.Or(err, errChanged)
		}
		if err := endToolRequests(ctx, tx, turn.ID, "an operator answers"); err != nil {
			return err
		}
		if err := tx.DropDemands(ctx, turn.ID, written.At); err != nil {
			return err
		}
		if err := s.note(ctx, tx, turn, exchange.EventOperatorAnswers, map[string]string{"by": a.By}, exchange.AuditAnswered, "by "+a.By); err != nil {
			return err
		}
		return tx.Enqueue(ctx, writtenJob(turn))
	})
	switch {
	case errors.Is(err, errChanged):
		return "", err
	case err != nil:
		return "", orUnavailable("answer message", err)
	}

	s.broker.forget(turn.ID)  // its run reads the row
	s.broker.restart(turn.ID) // a run of the agent that is under way here has nothing to say any more
	s.broker.notify(turn.ID)
	return turnID, nil
}

// writtenGroup is the group of the queue for answers of operators: they wait neither for programs of the agent nor for the end of its
// pause. No agent has a name with a blank.
const writtenGroup = "operator answers"

func writtenJob(turn exchange.TurnRecord) queue.NewJob {
	again := resumedJob(turn)
	again.Group = writtenGroup
	return again
}

// NextJob is the next run of a turn, behind what arrived in its thread meanwhile.
func NextJob(turn exchange.TurnRecord) queue.NewJob {
	if turn.Written != nil && len(turn.Written.Parts) > 0 {
		return writtenJob(turn)
	}
	return resumedJob(turn)
}

// sendWritten ends a turn with the answer that an operator wrote.
func (s *runner) sendWritten(ctx context.Context, job queue.Job, turn exchange.TurnRecord) error {
	ctx, record, err := s.begin(ctx, job, &turn)
	if err != nil {
		return err
	}
	defer record.end()

	response := normalized.Response{Parts: turn.Written.Parts}.Answering(turn.Message)
	return s.replies.conclude(ctx, job, record, ending{
		turn: turn, reply: s.replies.newReply(turn, response), state: exchange.StateAnswered, reason: "by " + turn.Written.By,
		more: func(ctx context.Context, tx Tx) error { return tx.SpendAnswer(ctx, turn) },
	})
}

// errHandedBack rolls back that a turn waits for an operator who has handed its conversation back meanwhile.
var errHandedBack = errors.New("no operator has the conversation any more")

// parkForOperator lets a turn wait whose conversation an operator has; parked reports whether its run is over with that. It returns the
// newest takeover that has ended. A message that begins a conversation needs no look.
func (s *runner) parkForOperator(ctx context.Context, job queue.Job, turn exchange.TurnRecord) (handed exchange.Takeover, parked bool, err error) {
	if entry, expected := s.broker.expectation(turn.ID); expected && entry.fresh {
		return handed, false, nil
	}
	newest, found, err := s.options.Store.Takeover(ctx, turn.Agent, turn.ThreadID)
	switch {
	case err != nil:
		return handed, false, queue.RetryAfter(again, err)
	case !found:
		return handed, false, nil
	case !newest.Open():
		return newest, false, nil
	}

	moved := false
	err = s.replies.closeRun(ctx, job, nil, nil, time.Time{}, func(tx Tx) error {
		_, open, err := tx.HoldTakeover(ctx, turn.Agent, turn.ThreadID)
		if err != nil || !open {
			return cmp.Or(err, errHandedBack)
		}
		moved, err = tx.MoveTurn(ctx, TakenOver.Move(turn.ID, exchange.StateWaiting, exchange.WaitingOperator, time.Now()))
		return err
	})
	switch {
	case errors.Is(err, errHandedBack):
		return handed, true, queue.RetryAfter(time.Millisecond, err)
	case err != nil:
		return handed, true, queue.RetryAfter(again, err)
	}

	if moved {
		s.logState(ctx, turn, exchange.StateWaiting, exchange.WaitingOperator)
		turn.State, turn.Reason = exchange.StateWaiting, exchange.WaitingOperator
		s.broker.finished(turn)
	}
	return handed, true, queue.ErrSettled
}

// handover is what the agent is told of the newest takeover of the conversation, if this is the turn in which it is told.
func (s *runner) handover(ctx context.Context, turn exchange.TurnRecord, record *runRecord) (*agents.Handover, error) {
	handed := record.handed
	if handed.ID == "" || handed.ToldTurn != "" && handed.ToldTurn != turn.ID {
		return nil, nil
	}
	mine := handed.ToldTurn == turn.ID
	if !mine {
		err := s.options.Store.InTx(ctx, func(tx Tx) (err error) {
			mine, err = tx.TellOfTakeover(ctx, handed.ID, turn.ID)
			return err
		})
		if err != nil || !mine {
			return nil, err
		}
	}
	return &agents.Handover{Since: handed.Since, Until: handed.EndedAt, Note: handed.Note}, nil
}
