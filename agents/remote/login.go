package remote

import (
	"context"
	"strconv"
	"time"

	turns "inbox/exchange"
	"inbox/internal/fault"
)

// Bounds of following a task that waits until somebody has signed in at the other agent's service. Between two looks the turn is
// a row: it holds no worker and no connection, and any node takes it up.
const (
	firstLook   = 2 * time.Second
	maxLook     = 15 * time.Minute
	followLimit = 24 * time.Hour
	maxLooks    = 120
)

// lookPause doubles from firstLook to maxLook.
func lookPause(looks int) time.Duration {
	if looks > 9 {
		return maxLook
	}
	return min(firstLook<<looks, maxLook)
}

// awaitLogin parks the turn until the next look at the task. It reports false where turns cannot wait or the task was followed long
// enough: then the asker has to write again. Asked names the question that is told to the asker; empty = that of the last look.
func (x *exchange) awaitLogin(ctx context.Context, asked string) (bool, error) {
	now := time.Now()
	next := x.before
	if next.Looks == 0 {
		next = progress{Task: string(x.task.id), Context: x.task.context, Since: now}
	}
	if x.turn.Requests == nil || next.Task == "" || next.Looks >= maxLooks || now.Sub(next.Since) > followLimit {
		return false, nil
	}
	pause := lookPause(next.Looks)
	next.Looks++
	if asked != "" {
		next.Told = asked
	}
	err := x.turn.Requests.Await(map[string]any{
		"tool_name": turns.ToolAuthorization, "tool_call_id": x.id + "-" + strconv.Itoa(next.Looks), "run_id": x.turn.ID,
		"timeout_at": now.Add(pause).UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		return false, fault.GiveUp(sayHere, err)
	}
	recoveries.WithLabelValues("followed").Inc()
	return true, x.agent.keep(ctx, x.agent.turnKey(x.turn, x.id), next, turnLife)
}
