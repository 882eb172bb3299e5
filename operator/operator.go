// Package operator is what an operator may look at and do, once: the commands, the operator API and programs that embed
// the server call the same methods, grouped by topic. It works on the database of a running or of a stopped server: what a
// command changes, running servers notice by their queue and their lists. It speaks no protocol and prints nothing.
package operator

import (
	"context"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/config"
)

// CommandLine is who did something, for the record, where the operator used a command.
const CommandLine = "operator:command line"

// Operator is what an operator may do, by topic.
type Operator struct {
	Approvals Approvals

	options Options
}

// Options are what an operator works with; all are required.
type Options struct {
	Config *config.Config
	Store  *store.Store

	Approvals Approvals
}

// New makes an operator.
func New(options Options) *Operator {
	return &Operator{
		Approvals: options.Approvals,
		options:   options,
	}
}

// Close closes the database.
func (o *Operator) Close() error { return o.options.Store.Close() }

// SchemaVersion returns the version of the database's schema.
func (o *Operator) SchemaVersion(ctx context.Context) (int64, error) {
	return o.options.Store.SchemaVersion(ctx)
}

// Approvals are the decisions that somebody else than the asker has to take. An approval is named by its id or its code; by
// is who decides, for the record. Errors are fault.NotFound, fault.Gone (expired), fault.Conflict (decided before) and
// fault.Malformed. A server that runs tells the asker at once, one that is stopped at its next start.
type Approvals interface {
	// Approvals lists what waits for a decision, newest first; with filter.All also what was decided.
	Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]exchange.Approval, error)
	Approval(ctx context.Context, id string) (exchange.Approval, error)
	// Approve lets the agent go on, or the answer that was held back pass.
	Approve(ctx context.Context, id, by string) (exchange.Approval, error)
	// Deny ends the turn; a reason of at most 500 bytes is told to the asker.
	Deny(ctx context.Context, id, by, reason string) (exchange.Approval, error)
	// EditReply replaces the text of an answer that is held back. fault.Malformed for an empty text or an approval of an
	// action.
	EditReply(ctx context.Context, id, by, text string) (exchange.Approval, error)
}

// listed makes an empty list of none, so that JSON says [] and not null.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
