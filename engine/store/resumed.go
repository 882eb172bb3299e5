package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// resumption is with what a parked turn was taken up again.
type resumption struct {
	Resolution *policypart.Resolution `json:"policy_resolution,omitempty"`
	Trace      *normalized.Response   `json:"received_trace,omitempty"`
}

// reasonResumed is the reason of a turn that was parked and runs again.
const reasonResumed = "resumed"

// The transition pipeline.Resumed.
const resumeTurn = `UPDATE turns SET state = '` + exchange.StateAccepted + `', reason = $1, resumed = $2, updated_at = $3
	WHERE id = $4 AND state = '` + exchange.StateWaiting + `'`

// ResumeTurn lets a waiting turn run again with what it waited for, and writes "turn.accepted" to the timeline. What is
// nil stays as an earlier resumption left it, so that an agent that asked others and then for consent sees both. It
// reports whether the turn was waiting.
func (t *Tx) ResumeTurn(
	ctx context.Context, turnID string, resolution *policypart.Resolution, trace *normalized.Response, at time.Time,
) (bool, error) {
	stored, err := t.mergedResumption(ctx, turnID, resumption{resolution, trace})
	if err != nil {
		return false, err
	}
	if changed, err := t.change(ctx, resumeTurn, reasonResumed, stored, micros(at), turnID); err != nil || changed == 0 {
		return false, err
	}
	t.wake(ChannelTurn, turnID)
	body := stateBody(reasonResumed, 0)
	return true, t.appendEvent(ctx, turnID, "turn."+exchange.StateAccepted, body, micros(at))
}

func (t *Tx) mergedResumption(ctx context.Context, turnID string, next resumption) (string, error) {
	if err := t.holdTurn(ctx, turnID); err != nil {
		return "", err
	}
	var stored string
	if _, err := first(ctx, t, `SELECT resumed FROM turns WHERE id = $1`, []any{turnID}, &stored); err != nil {
		return "", err
	}
	before, err := decodeResumption(turnID, stored)
	if err != nil {
		return "", err
	}
	if next.Resolution == nil {
		next.Resolution = before.Resolution
	}
	if next.Trace == nil {
		next.Trace = before.Trace
	}
	body, err := json.Marshal(next)
	if err != nil {
		return "", fmt.Errorf("encode resumption: %w", err)
	}
	return cleaned(string(body)), nil
}

func decodeResumption(turnID, stored string) (resumption, error) {
	var r resumption
	if stored == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(stored), &r); err != nil {
		return r, fmt.Errorf("decode resumption of turn %s: %w", turnID, err)
	}
	return r, nil
}

// fillResumed puts what was stored where the agent looks for it. A message that brought its own keeps it until then.
func fillResumed(turn *exchange.TurnRecord, stored string) error {
	r, err := decodeResumption(turn.ID, stored)
	if r.Resolution != nil {
		turn.Message.PolicyResolution = r.Resolution
	}
	if r.Trace != nil {
		turn.Message.ReceivedTrace = r.Trace
	}
	return err
}
