package task

import "context"

// Runs keeps task results by run id.
type Runs interface {
	// Claim stores a new run and is true for exactly one caller of its run id.
	Claim(ctx context.Context, run map[string]any) (bool, error)

	// Get gives the stored run, nil when there is none. The caller may change what it gets.
	Get(ctx context.Context, runID string) (map[string]any, error)

	// Update replaces a stored run by what change makes of it, with no other change in between, and gives the new one;
	// nil when there is none. change may run more than once and must not keep what it gets.
	Update(ctx context.Context, runID string, change func(run map[string]any) (map[string]any, error)) (map[string]any, error)
}
