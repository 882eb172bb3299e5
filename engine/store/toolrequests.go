package store

import (
	"context"
	"encoding/json"
	"time"

	"inbox/agents/runtime/tool/request"
	"inbox/exchange"
	"inbox/internal/fault"
)

// maxToolKey bounds what identifies a request, in bytes, so that every index entry fits.
const maxToolKey = 512

const insertToolRequest = `INSERT INTO tool_requests (id, agent, run_id, tool_name, status, created_at, due_at, updated_at, request, result)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) `

// InsertToolRequest stores a request unless its id is taken, and returns the status of the row that is there afterwards.
// Ids, names and agents that no index can hold are fault.Malformed.
func (t *Tx) InsertToolRequest(ctx context.Context, r exchange.ToolRequest) (status string, err error) {
	arguments, err := toolRequestArguments(r)
	if err != nil {
		return "", err
	}
	inserted, err := t.change(ctx, insertToolRequest+`ON CONFLICT (id) DO NOTHING`, arguments...)
	if err != nil || inserted > 0 {
		return r.Status, err
	}
	_, err = first(ctx, t, `SELECT status FROM tool_requests WHERE id = $1`, []any{r.ID}, &status)
	return status, err
}

func toolRequestArguments(r exchange.ToolRequest) ([]any, error) {
	for name, value := range map[string]string{"request_id": r.ID, "agent": r.Agent, "run_id": r.TurnID, "tool_name": r.ToolName} {
		if len(value) > maxToolKey {
			return nil, fault.InField(name, "is longer than 512 bytes")
		}
		if err := requireStorable(name, value); err != nil {
			return nil, err
		}
	}
	created := microsOrNow(r.CreatedAt)
	return []any{
		r.ID, r.Agent, r.TurnID, r.ToolName, r.Status, created, micros(r.TimeoutAt), created, cleaned(string(r.Request)), cleaned(string(r.Result)),
	}, nil
}

const endToolRequest = `UPDATE tool_requests SET status = $1, result = $2, updated_at = $3
	WHERE id = $4 AND status = '` + request.StatusPending + `'`

// EndToolRequest changes a pending request to a terminal status, with its result if there is one. It reports whether it did.
func (t *Tx) EndToolRequest(ctx context.Context, id, status string, result json.RawMessage, at time.Time) (bool, error) {
	if !storable(id) {
		return false, nil
	}
	changed, err := t.change(ctx, endToolRequest, status, cleaned(string(result)), microsOrNow(at), id)
	return changed > 0, err
}

const pendingOfRun = `SELECT id FROM tool_requests WHERE run_id = $1 AND status = '` + request.StatusPending + `' ORDER BY created_at, id`

// PendingToolRequests returns the ids of the requests for which a turn waits.
func (t *Tx) PendingToolRequests(ctx context.Context, turnID string) (ids []string, err error) {
	err = t.each(ctx, pendingOfRun, []any{turnID}, func(r row) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

const (
	toolRequestColumns = `id, agent, run_id, tool_name, status, created_at, due_at, updated_at, request, result`
	toolRequestByID    = `SELECT ` + toolRequestColumns + ` FROM tool_requests WHERE id = $1`
)

// ToolRequest returns one request; fault.NotFound when there is none.
func (s *Store) ToolRequest(ctx context.Context, id string) (exchange.ToolRequest, error) {
	if !storable(id) {
		return exchange.ToolRequest{}, notFound("tool request")
	}
	found, err := s.toolRequests(ctx, toolRequestByID, []any{id})
	if err == nil && len(found) == 0 {
		err = notFound("tool request")
	}
	if err != nil {
		return exchange.ToolRequest{}, err
	}
	return found[0], nil
}

// ToolRequests lists requests, oldest first, at most 500; the pending ones unless filter.All.
func (s *Store) ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error) {
	query, arguments := selectToolRequests(filter)
	return s.toolRequests(ctx, query, arguments)
}

func selectToolRequests(f exchange.ToolRequestFilter) (query string, arguments []any) {
	var chosen selection
	order := "created_at, id"
	chosen.addWhen(!f.All, "status = '"+request.StatusPending+"'")
	chosen.addWhen(f.TurnID != "", "run_id = ?", cleaned(f.TurnID))
	chosen.addWhen(f.Agent != "", "agent = ?", cleaned(f.Agent))
	chosen.addWhen(f.ToolName != "", "tool_name = ?", cleaned(f.ToolName))
	chosen.addWhen(!f.CreatedBefore.IsZero(), "created_at < ?", micros(f.CreatedBefore))
	chosen.addWhen(!f.CreatedAfter.IsZero(), "created_at > ?", micros(f.CreatedAfter))
	if !f.DueBy.IsZero() {
		chosen.add("due_at > 0 AND due_at <= ?", micros(f.DueBy))
		order = "due_at, id"
	}
	query = `SELECT ` + toolRequestColumns + ` FROM tool_requests` + chosen.sql() + chosen.page(order, f.Limit)
	return query, chosen.arguments
}

func (s *Store) toolRequests(ctx context.Context, query string, arguments []any) ([]exchange.ToolRequest, error) {
	var found []exchange.ToolRequest
	err := s.engine.reader().each(ctx, query, arguments, func(r row) error {
		var one exchange.ToolRequest
		var created, due, updated int64
		var document, result string
		if err := r.Scan(&one.ID, &one.Agent, &one.TurnID, &one.ToolName, &one.Status, &created, &due, &updated, &document, &result); err != nil {
			return err
		}
		one.CreatedAt, one.TimeoutAt, one.UpdatedAt = instant(created), instant(due), instant(updated)
		one.Request, one.Result = rawJSON(document), rawJSON(result)
		found = append(found, one)
		return nil
	})
	return found, err
}
