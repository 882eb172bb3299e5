package store

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

// RequestStore keeps runtime tool requests of no agent in particular: request.Store on the database, for programs that
// lead their own conversations with agents/loop. It resumes nothing; the requests of turns are the pipeline's.
type RequestStore struct{ store *Store }

// RequestStore gives the library's view of tool requests.
func (s *Store) RequestStore() *RequestStore { return &RequestStore{s} }

// Create implements request.Store. It refuses records over request.MaxRecordBytes, and names that no index can
// hold, with request.CodeRequest.
func (r *RequestStore) Create(ctx context.Context, normalized map[string]any) error {
	encoded, err := boundedRecord(normalized, request.CodeRequest)
	if err != nil {
		return err
	}
	due, _ := request.TimeoutAt(normalized)
	arguments, err := toolRequestArguments(exchange.ToolRequest{
		ID: value.Text(normalized["request_id"]), TurnID: value.Text(normalized["run_id"]), ToolName: value.Text(normalized["tool_name"]),
		Status: request.StatusPending, Request: encoded, TimeoutAt: due,
	})
	if err != nil {
		return &request.Error{Code: request.CodeRequest, Reason: err.Error()}
	}
	return r.store.InTx(ctx, func(tx *Tx) error { return tx.do(ctx, replaceToolRequest, arguments...) })
}

// Get implements request.Store.
func (r *RequestStore) Get(ctx context.Context, requestID string) (map[string]any, error) {
	found, err := r.store.ToolRequest(ctx, requestID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return request.FromRow(found.Request, found.Status, found.Result)
}

// TransitionPending implements request.Store.
func (r *RequestStore) TransitionPending(ctx context.Context, requestID, status string, result map[string]any) (won bool, err error) {
	var encoded json.RawMessage
	if result != nil {
		if encoded, err = boundedRecord(result, request.CodeResult); err != nil {
			return false, err
		}
	}
	err = r.store.InTx(ctx, func(tx *Tx) (err error) {
		won, err = tx.EndToolRequest(ctx, requestID, status, encoded, time.Now())
		return err
	})
	return won, err
}

// RecentPending implements request.Store; at most 500 at once.
func (r *RequestStore) RecentPending(ctx context.Context, query request.Query) ([]map[string]any, error) {
	found, err := r.store.ToolRequests(ctx, exchange.ToolRequestFilter{
		TurnID: query.RunID, ToolName: query.ToolName, CreatedBefore: query.Before, CreatedAfter: query.After, DueBy: query.DueBy, Limit: query.Limit,
	})
	records := make([]map[string]any, 0, len(found))
	for _, one := range found {
		record, broken := request.FromRow(one.Request, one.Status, one.Result)
		records, err = append(records, record), errors.Join(err, broken)
	}
	return records, err
}

// boundedRecord writes a record as it is kept.
func boundedRecord(given map[string]any, code string) (json.RawMessage, error) {
	encoded, err := value.Encode(given)
	switch {
	case err != nil:
		return nil, &request.Error{Code: code, Reason: "is not JSON: " + err.Error()}
	case len(encoded) > request.MaxRecordBytes:
		return nil, &request.Error{Code: code, Reason: "is over 1 MiB as JSON"}
	}
	return encoded, nil
}
