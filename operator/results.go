package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"inbox/agents"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/operator/lookup"
)

// Results are the conversation results of runs (agent runtime contract, section 2). They are kept for 90 days, and no longer than what
// was said in their message.
type Results struct {
	store *store.Store
	files func() (exchange.Files, error) // opens the blob store, which large results alone need

	index *lookup.Index
}

// ShownResult is the result of one run of a message, with what is known of its other runs.
type ShownResult struct {
	exchange.RunResult

	TurnID string               `json:"turn_id"`
	Runs   []exchange.RunResult `json:"runs"`             // all runs of the message that gave a result, in their order
	Result json.RawMessage      `json:"result,omitempty"` // the document; absent where it was left out
}

// Result returns the result of a run of the message that any id names; 0 is the newest run that gave one. fault.NotFound without such a message, and when its agent gave
// none, or what was said in it is erased.
func (r Results) Result(ctx context.Context, id string, run int) (ShownResult, error) {
	turnID, err := r.index.Turn(ctx, id)
	if err != nil {
		return ShownResult{}, err
	}

	runs, err := r.store.RunResults(ctx, turnID)
	if err != nil {
		return ShownResult{}, err
	}
	if len(runs) == 0 {
		return ShownResult{}, fault.New(fault.NotFound, "no conversation result is kept of the message: its agent returns none, it is older than 90 days, or it was erased")
	}

	if run == 0 {
		run = runs[len(runs)-1].Run
	}
	found, err := r.store.RunResult(ctx, turnID, run)
	if err != nil {
		return ShownResult{}, err
	}

	shown := ShownResult{RunResult: found, TurnID: turnID, Runs: runs, Result: found.Body}
	if found.Digest != "" {
		shown.Result, err = r.read(ctx, found.Digest)
	}
	return shown, err
}

func (r Results) read(ctx context.Context, digest string) ([]byte, error) {
	files, err := r.files()
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "the conversation result is in the blob store, which cannot be opened here", err)
	}

	from, err := files.Open(ctx, digest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()

	document, err := io.ReadAll(io.LimitReader(from, agents.MaxResult))
	if err != nil {
		return nil, fmt.Errorf("read conversation result: %w", err)
	}
	return document, nil
}
