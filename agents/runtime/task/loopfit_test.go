package task

import "context"

// The run control of the loop, which is a level above: what it needs must be what a Controller offers.
var _ interface {
	Start(ctx context.Context, runID, sessionID string) error
	Cancelling(ctx context.Context, runID string) (bool, error)
	Finish(ctx context.Context, runID, status string) error
} = Controller{}
