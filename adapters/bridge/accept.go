package bridge

import (
	"context"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/fault"
)

// place is where a message goes: the session that the caller named, the one of the outside conversation, or a new one.
// fresh says that the session was made for this message.
func (a *Adapter) place(ctx context.Context, owner, named string, agent exchange.AgentProfile, message contract.Message, title string) (session exchange.Session, fresh bool, err error) {
	if named != "" {
		session, err = a.sessionOf(ctx, owner, named)
		if err == nil && session.Agent != agent.Name {
			err = sessionNotFound()
		}
		return session, false, err
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	session = exchange.Session{
		ID: newID(), Owner: owner, Agent: agent.Name, ThreadID: "session:" + newID(), Title: title,
		Connector: message.ConnectorID, Conversation: message.ConversationID, CreatedAt: now, UpdatedAt: now,
	}
	if message.ConversationID == "" {
		session, _, err = a.options.Sessions.CreateSession(ctx, session)
		return session, true, err
	}
	key := contract.NewSessionKey(message.ConnectorID, message.ConversationID, agent.Name)
	session, err = a.options.Sessions.ChannelSession(ctx, key, session)
	return session, false, err
}

func sessionNotFound() error { return fault.New(fault.NotFound, "the session was not found") }

func (a *Adapter) sessionOf(ctx context.Context, owner, id string) (exchange.Session, error) {
	session, found, err := a.options.Sessions.Session(ctx, owner, id)
	if err == nil && !found {
		err = sessionNotFound()
	}
	return session, err
}

// accepted is one question that is stored: new, or the first copy of a repeat.
type accepted struct {
	turn    exchange.TurnRecord
	session string
	repeat  bool
}

// accept brings a question into the engine. It returns only when message and job are committed. Where the answer would have
// no room the question is refused: what is taken is answered.
func (a *Adapter) accept(ctx context.Context, q question, fresh bool) (accepted, error) {
	if q.way == wayQueue {
		if err := a.options.Queue.Room(ctx, q.client); err != nil {
			return accepted{}, a.abandon(ctx, q.session, fresh, err)
		}
	}
	imported, err := a.begins(ctx, q.session)
	if err != nil {
		return accepted{}, err
	}
	in, err := a.inbound(ctx, q, imported)
	if err != nil {
		return accepted{}, a.abandon(ctx, q.session, fresh, err)
	}
	receipt, err := a.options.Receiver.Receive(ctx, in)
	if err != nil {
		return accepted{}, a.abandon(ctx, q.session, fresh, err)
	}
	turn, err := a.options.Turns.Turn(ctx, receipt.TurnID)
	if err != nil {
		return accepted{}, err
	}
	kept := readRoute(turn.Route)
	if !receipt.New && kept.Session != q.session.ID {
		_ = a.abandon(ctx, q.session, fresh, nil)
	}
	if receipt.New {
		if err := a.options.Sessions.TouchSession(ctx, q.session.Owner, q.session.ID, turn.AcceptedAt); err != nil {
			a.log.WarnContext(ctx, "a session keeps its old date", "session", q.session.ID, "error", err)
		}
	}
	return accepted{turn, kept.Session, !receipt.New}, nil
}

// begins reports whether the next message of a session is the first after an import: its history is what was imported.
func (a *Adapter) begins(ctx context.Context, session exchange.Session) (bool, error) {
	if session.Imported == 0 {
		return false, nil
	}
	turns, err := a.options.Turns.Turns(ctx, exchange.TurnFilter{Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: 1})
	return len(turns) == 0, err
}

// abandon takes back a session that was made for a message which did not need it.
func (a *Adapter) abandon(ctx context.Context, session exchange.Session, fresh bool, cause error) error {
	if !fresh {
		return cause
	}
	if err := a.options.Sessions.DeleteSession(context.WithoutCancel(ctx), session.Owner, session.ID); err != nil {
		a.log.WarnContext(ctx, "an empty session stays", "session", session.ID, "error", err)
	}
	return cause
}

// settled waits for the end of a turn, at most the given time; then it returns the turn as it is: the run goes on.
func (a *Adapter) settled(ctx context.Context, turn exchange.TurnRecord, patience time.Duration) (exchange.TurnRecord, error) {
	if patience <= 0 || ended(turn) {
		return turn, nil
	}
	serving, stop := whileServing(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(serving, patience)
	defer cancel()
	found, err := a.options.Runs.Wait(waiting, turn.ID)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return a.options.Turns.Turn(ctx, turn.ID)
	}
	return found, err
}

func ended(turn exchange.TurnRecord) bool {
	return exchange.Settled(turn.State) && !exchange.GoesOnByItself(turn)
}
