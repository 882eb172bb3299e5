package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
)

// ToolRequests leads the requests of one agent, or of all agents where agent is empty: those of others are not found. By
// says who calls, for the timeline. What ends a request lets its turn run again in the same transaction, so that
// continuations are not needed. Stored records also have agent, created_at and updated_at.
func (s *Service) ToolRequests(agent, by string) request.Lifecycle {
	return request.Lifecycle{Store: toolStore{service: s, agent: agent, by: by}}
}

// ToolCancels is ToolRequests for who takes a request back: the timeline tells it from one whose time is over.
func (s *Service) ToolCancels(agent, by string) request.Lifecycle {
	return request.Lifecycle{Store: toolStore{service: s, agent: agent, by: by, cancels: true}}
}

// toolStore is request.Store over the requests of turns.
type toolStore struct {
	service *Service
	agent   string
	by      string
	cancels bool
}

// errTurnsAlone is met by who wants to make a request without a turn.
var errTurnsAlone = errors.New("requests are made by turns")

// Create implements request.Store. Only a run makes requests, by Await.
func (t toolStore) Create(context.Context, map[string]any) error { return errTurnsAlone }

func (t toolStore) find(ctx context.Context, id string) (found exchange.ToolRequest, has bool, err error) {
	found, err = t.service.options.Store.ToolRequest(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return found, false, nil
	}
	return found, err == nil && (t.agent == "" || found.Agent == t.agent), err
}

// Get implements request.Store.
func (t toolStore) Get(ctx context.Context, id string) (map[string]any, error) {
	found, has, err := t.find(ctx, id)
	if err != nil || !has {
		return nil, err
	}
	return toolRecord(found)
}

// toolRecord is a stored request with what only the server knows of it.
func toolRecord(stored exchange.ToolRequest) (map[string]any, error) {
	record, err := request.FromRow(stored.Request, stored.Status, stored.Result)
	if err != nil {
		return nil, err
	}
	record["agent"], record["created_at"], record["updated_at"] = stored.Agent, timeText(stored.CreatedAt), timeText(stored.UpdatedAt)
	return record, nil
}

// RecentPending implements request.Store; at most 500 at once.
func (t toolStore) RecentPending(ctx context.Context, query request.Query) ([]map[string]any, error) {
	found, err := t.service.options.Store.ToolRequests(ctx, exchange.ToolRequestFilter{
		Agent: t.agent, TurnID: query.RunID, ToolName: query.ToolName, CreatedBefore: query.Before, CreatedAfter: query.After,
		DueBy: query.DueBy, Limit: query.Limit,
	})
	if err != nil {
		return nil, err
	}
	records := make([]map[string]any, 0, len(found))
	for _, one := range found {
		record, err := toolRecord(one)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// maxToolResult bounds a result as JSON: what a program may hand in, and the names around it.
const maxToolResult = request.MaxRecordBytes + 4<<10

// errOther rolls the transaction of a request back that somebody else ended.
var errOther = errors.New("the request is not pending any more")

// TransitionPending implements request.Store: the request ends, its timeline says so and its turn runs again, all of it
// or nothing.
func (t toolStore) TransitionPending(ctx context.Context, id, status string, result map[string]any) (bool, error) {
	found, has, err := t.find(ctx, id)
	if err != nil || !has || found.Status != request.StatusPending {
		return false, err
	}
	var encoded json.RawMessage
	if result != nil {
		if encoded, err = value.Encode(result); err != nil || len(encoded) > maxToolResult {
			return false, &request.Error{Code: request.CodeResult, Reason: "is no JSON of at most 1 MiB"}
		}
	}
	turn, err := t.service.options.Store.Turn(ctx, found.TurnID)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}
	event := t.event(found, status, result)
	err = t.service.options.Store.InTx(ctx, func(tx Tx) error {
		if exchange.GoesOnByItself(turn) || turn.State == exchange.StateWaiting && turn.Reason == exchange.WaitingAuthorization {
			if err := resumeTurn(ctx, tx, turn); err != nil { // the turn's row is taken first, as everywhere
				return err
			}
		}
		won, err := tx.EndToolRequest(ctx, id, status, encoded, time.Now())
		if err != nil {
			return err
		}
		if !won {
			return errOther
		}
		if turn.ID == "" {
			return nil
		}
		return tx.AppendEvents(ctx, turn.ID, []exchange.Event{event})
	})
	if errors.Is(err, errOther) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	toolRequests.WithLabelValues(outcomes[event.Kind]).Inc()
	t.service.broker.notify(turn.ID)
	return true, nil
}

var outcomes = map[string]string{
	exchange.EventToolSubmitted: "submitted", exchange.EventToolTimedOut: "timed_out", exchange.EventToolCancelled: "cancelled",
}

func (t toolStore) event(r exchange.ToolRequest, status string, result map[string]any) exchange.Event {
	facts := map[string]any{"by": t.by}
	switch {
	case status == request.StatusCompleted:
		facts["success"] = result["success"]
		return toolEvent(exchange.EventToolSubmitted, r, facts)
	case t.cancels:
		return toolEvent(exchange.EventToolCancelled, r, facts)
	}
	return toolEvent(exchange.EventToolTimedOut, r, facts)
}
