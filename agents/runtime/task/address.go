package task

import (
	"context"
	"fmt"

	"inbox/agents/runtime/value"
)

// Get gives the stored result of the run that run_id and session_id of the address name, redacted for callers that are
// no managers. It fails with CodeNotFound also for a run of somebody else (agent runtime contract, section 7).
func (d *Dispatcher) Get(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	run, err := d.find(ctx, caller, address)
	if err != nil || caller.Manager {
		return run, err
	}
	return Redact(run), nil
}

// Cancel asks a run to end and gives it with "cancelled", which is false for a run that had come to its end. A handler
// in this process sees the end of its context. It may be repeated, and fails like Get (agent runtime contract,
// section 7).
func (d *Dispatcher) Cancel(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	found, err := d.find(ctx, caller, address)
	if err != nil {
		return nil, err
	}
	runID := value.Text(found["run_id"])
	cancelled := false
	run, err := d.options.Runs.Update(ctx, runID, func(run map[string]any) (map[string]any, error) {
		if cancelled = !Terminal(NormalizeStatus(run["status"])); cancelled {
			run["status"] = StatusCancelling
		}
		run["updated_at"] = timestamp()
		return NormalizeRun(run)
	})
	if err != nil {
		return nil, fmt.Errorf("cancel task run: %w", err)
	}
	if run == nil {
		return nil, notFound()
	}
	d.stop(runID)
	if !caller.Manager {
		run = Redact(run)
	}
	run["cancelled"] = cancelled
	return run, nil
}

// find gives the run of an address if the caller may know of it.
func (d *Dispatcher) find(ctx context.Context, caller Caller, address map[string]any) (map[string]any, error) {
	run, err := d.options.Runs.Get(ctx, value.Scalar(address["run_id"]))
	if err != nil {
		return nil, fmt.Errorf("read task run: %w", err)
	}
	if run == nil || value.Scalar(run["session_id"]) != value.Scalar(address["session_id"]) || !caller.mayUse(run) {
		return nil, notFound()
	}
	return NormalizeRun(run)
}

func (d *Dispatcher) stop(runID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel := d.running[runID]; cancel != nil {
		cancel(ErrCancelled)
	}
}

func notFound() error {
	return refuse(CodeNotFound, "There is no such run in this session.")
}
