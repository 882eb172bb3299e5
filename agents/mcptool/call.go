package mcptool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/internal/clip"
	"inbox/internal/telemetry"
)

// IdempotencyMeta is the member of _meta under which a server finds the idempotency key of a call: the same in every
// repetition of the call within one run.
const IdempotencyMeta = "inbox/idempotency_key"

// Values of error_type in an answer.
const (
	kindTool        = "tool_error"              // the tool itself says that it failed
	kindTimeout     = "tool_timeout"            // no answer in time; it may have run
	kindUnavailable = "tool_server_unavailable" // the call was not sent
	kindUnknown     = "tool_outcome_unknown"    // the connection was lost; it may have run
	kindInvalid     = "tool_answer_invalid"     // the answer cannot be understood; it may have run
	kindRefused     = "tool_call_refused"       // the server rejected the call
	kindNotFound    = "tool_not_found"
)

const maxErrorBytes = 8 << 10

func failed(kind, text string) map[string]any {
	return map[string]any{"success": false, "error": text, "error_type": kind}
}

func notFound(name string) map[string]any {
	return failed(kindNotFound, "Tool '"+name+"' not found")
}

// call runs a tool. Remote is its name at the server when it was declared; empty = whatever has the name now.
func (s *server) call(ctx context.Context, name, remote string, parameters map[string]any, key string) (map[string]any, error) {
	traced, span := telemetry.StartBelow(ctx, "tool", telemetry.KindClient, telemetry.Attribute("inbox.tool_server", s.settings.Name))
	if _, exists := s.current().byName[name]; exists { // others are words of a model
		span.Set(telemetry.Attribute("gen_ai.tool.name", name))
	}
	started := time.Now()
	answer, err := s.attempt(traced, name, remote, parameters, key)
	callSeconds.Observe(time.Since(started).Seconds())
	outcome := "ok"
	if err != nil {
		outcome = "cancelled"
	} else if kind, wrong := answer["error_type"].(string); wrong {
		outcome = kind
	}

	calls.WithLabelValues(s.settings.Name, outcome).Inc()
	if outcome == "ok" {
		span.End("")
	} else {
		span.End(outcome)
	}
	return answer, err
}

// attempt sends the call once.
func (s *server) attempt(outer context.Context, name, remote string, parameters map[string]any, key string) (map[string]any, error) {
	known, exists := s.current().byName[name]
	if !exists || remote != "" && remote != known.remote {
		return notFound(name), nil
	}

	ctx, cancel := context.WithTimeout(outer, s.settings.Timeout)
	defer cancel()
	c, leave := s.enter(ctx)
	if c == nil {
		if outer.Err() != nil {
			return nil, context.Cause(outer)
		}
		return failed(kindUnavailable, fmt.Sprintf("The tool server %q is not available right now; the tool was not run.", s.settings.Name)), nil
	}
	defer leave()
	defer context.AfterFunc(c.ctx, cancel)()
	result, err := c.session.CallTool(ctx, request(known.remote, parameters, key))
	if err != nil {
		return s.explain(outer, ctx, c, err)
	}
	if result.InputRequests != nil {
		return failed(kindRefused, "The tool asks for further input, which this server does not pass on."), nil
	}

	return s.answer(outer, result), nil
}

// enter takes a place at the server and its connection.
func (s *server) enter(ctx context.Context) (c *connection, leave func()) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ReconnectWait)
	defer cancel()

	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return nil, nil
	}

	leave = func() { <-s.places }
	c, found := s.borrow(ctx)
	if !found {
		leave()
		return nil, nil
	}

	return c, leave
}

func request(remote string, parameters map[string]any, key string) *mcp.CallToolParams {
	params := &mcp.CallToolParams{Name: remote, Arguments: parameters}
	if parameters == nil {
		params.Arguments = map[string]any{}
	}
	if key != "" {
		params.Meta = mcp.Meta{IdempotencyMeta: key}
	}
	return params
}

// The codes that the SDK uses for failures of its own transport.
const (
	codeClientClosing = -32003
	codeServerClosing = -32004
	codeNotSent       = -32005
)

// explain turns the failure of a call into what a model may read: what happened and whether the tool may have run.
// Addresses, paths and causes stay here. The error is that of a caller who gave up.
func (s *server) explain(outer, ctx context.Context, c *connection, failure error) (map[string]any, error) {
	refusal, refused := errors.AsType[*jsonrpc.Error](failure)
	switch {
	case outer.Err() != nil:
		return nil, context.Cause(outer)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failed(kindTimeout, fmt.Sprintf("The tool gave no answer within %s. It may have run nevertheless.", s.settings.Timeout)), nil
	case !c.alive() || disconnected(failure):
		c.cancel() // the next call waits for a new connection
		return s.unknown(kindUnknown, "The tool server %q ended the connection during the call."), nil
	case refused && refusal.Code == codeNotSent:
		s.note(ctx, failure)
		return s.unknown(kindUnknown, "The tool server %q could not be reached."), nil
	case refused:
		return failed(kindRefused, clip.Bytes(plain(refusal.Message), maxErrorBytes)), nil
	}

	s.note(ctx, failure)
	return s.unknown(kindInvalid, "The answer of the tool server %q could not be understood."), nil
}

func (s *server) unknown(kind, what string) map[string]any {
	return failed(kind, fmt.Sprintf(what, s.settings.Name)+" The tool may have run nevertheless.")
}

func (s *server) note(ctx context.Context, failure error) {
	s.log.WarnContext(ctx, "call of MCP server failed", "reason", withoutAddress(failure))
}

func disconnected(failure error) bool {
	if own, is := errors.AsType[*jsonrpc.Error](failure); is && (own.Code == codeClientClosing || own.Code == codeServerClosing) {
		return true
	}
	return errors.Is(failure, io.EOF) || errors.Is(failure, mcp.ErrConnectionClosed) || errors.Is(failure, mcp.ErrSessionMissing)
}
