package inbox

import (
	"context"
	"net/url"

	"inbox/engine/demand"
	"inbox/exchange"
)

// byCommand is who decided, for the record, where the operator used a command.
const byCommand = "operator:command line"

// Approvals lists what waits for a decision, newest first; with filter.All also what was decided.
func (o *Operator) Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]exchange.Approval, error) {
	return o.demands().Approvals(ctx, filter)
}

// Approval gives one approval by its id or code. fault.NotFound when there is none.
func (o *Operator) Approval(ctx context.Context, id string) (exchange.Approval, error) {
	return o.demands().Approval(ctx, id)
}

// Approve lets the agent go on, or the answer that was held back pass. fault.NotFound, fault.Gone (expired) or
// fault.Conflict (decided before).
func (o *Operator) Approve(ctx context.Context, id string) (exchange.Approval, error) {
	return o.demands().Approve(ctx, id, byCommand)
}

// Deny ends it; a reason is told to whoever asked. Errors are those of Approve, and fault.Malformed for a reason over 500
// bytes. A server that runs tells the asker at once, one that is stopped at its next start.
func (o *Operator) Deny(ctx context.Context, id, reason string) (exchange.Approval, error) {
	return o.demands().Deny(ctx, id, byCommand, reason)
}

// EditReply replaces the text of an answer that is held back. Errors are those of Approve, and fault.Malformed for an
// empty text or an approval of an action.
func (o *Operator) EditReply(ctx context.Context, id, text string) (exchange.Approval, error) {
	return o.demands().EditReply(ctx, id, byCommand, text)
}

// demands is the service for demands as far as rows go. It needs no secret, because nobody decides here by a page.
func (o *Operator) demands() *demand.Service {
	base, err := url.Parse(o.config.PublicURL)
	if err != nil { // the configuration was checked
		base = &url.URL{}
	}
	service := demand.New(demand.Options{Store: o.store, BaseURL: base})
	service.Bind(o.turns())
	return service
}
