package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// ResultTx keeps the conversation results of runs.
type ResultTx interface {
	// PutRunResult stores the result of a run, over an earlier one of the same run; of the turn's older runs beyond
	// exchange.MaxRunResults only the rows stay. Of a turn that was cancelled it stores how the run ended, without the document: what was
	// said in it may be erased by then. It stores nothing when the turn has ended otherwise.
	PutRunResult(ctx context.Context, result exchange.RunResult) error
}

// Why the document of a result is not kept.
const (
	resultTooLarge  = "the document is over 1 MiB"
	resultNoJSON    = "the document is not a JSON object"
	resultNotStored = "the document could not be put into the blob store"
)

// runResult is the conversation result of one run until it is written.
type runResult struct {
	mu       sync.Mutex
	pending  *exchange.RunResult // nil = nothing to write
	accepted int                 // documents that the agent gave

	status, stopReason string // of the newest document
}

// keep implements agents.Turn.KeepResult. What is over the bounds, or no JSON, leaves its row without a document: what is kept of a run
// must not end it.
func (r *runResult) keep(turnID string, run int, document []byte) {
	kept := exchange.RunResult{TurnID: turnID, Run: run, At: time.Now().UTC().Truncate(time.Microsecond), Bytes: len(document)}
	var head struct {
		Outcome struct {
			Status     string `json:"status"`
			StopReason string `json:"stop_reason"`
		} `json:"run_outcome"`
		Audit []json.RawMessage `json:"tool_audit_events"`
	}

	switch {
	case len(document) > agents.MaxResult:
		kept.LeftOut = resultTooLarge
	case !bytes.HasPrefix(bytes.TrimSpace(document), []byte("{")) || json.Unmarshal(document, &head) != nil:
		kept.LeftOut = resultNoJSON
	default:
		kept.Status, kept.Body, kept.Audit = head.Outcome.Status, bytes.Clone(document), fittingAudit(head.Audit)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.accepted++
	r.pending = &kept
	r.status, r.stopReason = kept.Status, head.Outcome.StopReason
}

// outcome returns the answer of the run with the outcome that its conversation result has. Every channel reads the outcome from the answer:
// one that a budget or a stall ended is not complete, whatever words the model found at its end.
func (r *runResult) outcome(response normalized.Response) normalized.Response {
	r.mu.Lock()
	status, reason := r.status, r.stopReason
	r.mu.Unlock()
	if response.Silent {
		return response
	}

	stopped := response
	stopped.Metadata = map[string]string{}
	maps.Copy(stopped.Metadata, response.Metadata)
	stopped.Metadata[normalized.MetadataOutcome] = status
	if reason != "" {
		stopped.Metadata[normalized.MetadataStopReason] = reason
	}
	if stopped.Outcome() == normalized.StatusCompleted {
		stopped.Status = normalized.StatusInputRequired
	}
	if stopped.Stopped() == "" {
		return response
	}
	return stopped
}

// maxAudit bounds what is kept of the audit of one run beside its document, in bytes.
const maxAudit = 64 << 10

// fittingAudit returns the first events that fit.
func fittingAudit(events []json.RawMessage) []json.RawMessage {
	size := 0
	for i, event := range events {
		if size += len(event) + 1; size > maxAudit {
			return events[:i]
		}
	}
	return events
}

// ready returns what is to be written, nil for nothing, and its number. A large document is in the blob store by then.
func (r *runResult) ready(ctx context.Context, blobs Blobs) (*exchange.RunResult, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil || len(r.pending.Body) <= inlineOriginal {
		return r.pending, r.accepted
	}

	digest, err := blobs.PutBytes(ctx, r.pending.Body)
	if err != nil {
		slog.WarnContext(ctx, "the conversation result of a run is not kept", "turn", r.pending.TurnID, "error", err)
		r.pending.LeftOut = resultNotStored
	}
	r.pending.Digest, r.pending.Body = digest, nil
	return r.pending, r.accepted
}

// wrote forgets the result of the number, unless the agent gave another one meanwhile.
func (r *runResult) wrote(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accepted == number {
		r.pending = nil
	}
}

func putResult(ctx context.Context, tx Tx, result *exchange.RunResult) error {
	if result == nil {
		return nil
	}
	return tx.PutRunResult(ctx, *result)
}
