package chat

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"

	"inbox/agents/runtime/envelope"
)

// Runs claims runs, so that no run is executed twice. task.Controller is one.
type Runs interface {
	// Start claims a run id once; the error for a claimed one has CodeRunAlreadyStarted or CodeRunOwnerForbidden.
	Start(ctx context.Context, runID, sessionID string) error

	// Finish keeps the status at the end of the run.
	Finish(ctx context.Context, runID, status string) error
}

// Dispatcher gives turns to their handlers, each run id once.
type Dispatcher struct {
	Handlers *Handlers
	Runs     Runs // nil = runs are not claimed
}

const runFailed = "failed"

// Dispatch answers a turn: it makes a run id if there is none, finds the handler, claims the run, and gives the output
// with that run id, whatever the handler says. A run ends as failed when the handler fails or panics; the panic goes on
// (agent runtime contract, section 6.1). emit may be nil.
func (d Dispatcher) Dispatch(ctx context.Context, input Input, emit Emit) (map[string]any, error) {
	run := envelope.Trim(input.RunID)
	if run == "" {
		run = NewRunID()
		input.RunID = run
	}
	handler := d.Handlers.Of(input.Agent)
	if handler == nil {
		return nil, refuse(CodeNoHandler, "No agents/chat handler is registered for this agent.")
	}
	if err := d.start(ctx, run, envelope.Trim(input.SessionID)); err != nil {
		return nil, err
	}
	status := runFailed
	defer func() { d.finish(ctx, run, status) }()
	answer, err := handler(ctx, input, emit)
	if err != nil {
		return nil, err
	}
	output, is := envelope.Object(answer)
	if !is {
		return nil, refuse(CodeInvalidResult, "agents/chat handler returned an unexpected result type. "+
			"Handlers must return an array matching the canonical output shape or a WP_Error.") // the recorded words, which peers read
	}
	output = maps.Clone(output)
	output["run_id"] = run
	status = envelope.RunControlStatus(output)
	return output, nil
}

func (d Dispatcher) start(ctx context.Context, run, session string) error {
	if d.Runs == nil {
		return nil
	}
	if err := d.Runs.Start(ctx, run, session); err != nil {
		return fmt.Errorf("claim chat run: %w", err)
	}
	return nil
}

// finish must not fail with the caller's context: the run is over whoever waits for it. An error leaves it running for
// the reader, until it is forgotten.
func (d Dispatcher) finish(ctx context.Context, run, status string) {
	if d.Runs != nil {
		_ = d.Runs.Finish(context.WithoutCancel(ctx), run, status)
	}
}

// NewRunID makes a run id.
func NewRunID() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails since Go 1.24
	return "run_" + hex.EncodeToString(random)
}

// maxReadableID is the longest run id, in bytes, that stands in a message's id as it is.
const maxReadableID = 256

// MessageID gives the id of the message that began a run of a chat client, by which its turn is found again. A longer run
// id stands in it as its hash.
func MessageID(run string) string {
	if len(run) > maxReadableID {
		sum := sha256.Sum256([]byte("chat id\x00" + run))
		run = hex.EncodeToString(sum[:])
	}
	return "chat:run:" + run
}
