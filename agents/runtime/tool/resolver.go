package tool

import (
	"context"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/internal/fault"
)

// ActionHandler does what pending actions of one kind are about.
type ActionHandler interface {
	// CanResolve tells whether the resolver may decide so about the action.
	CanResolve(ctx context.Context, action PendingAction, resolution Resolution) (bool, error)
	// Apply does what follows from a decision; it is called for rejections, too. It runs at most once for an action.
	Apply(ctx context.Context, action PendingAction, resolution Resolution) (any, error)
}

// Resolver decides pending actions: permission, then the decision in the store, then the handler (agent runtime
// contract, section 4.10). The decision is stored before the handler runs, so that of two deciders one wins and a crash
// between the two never runs an action twice; an accepted action without a result is for a person to look at.
type Resolver struct {
	Store    PendingStore
	Handlers map[string]ActionHandler // by kind
	Now      func() time.Time         // nil: time.Now
}

// Check looks at a decision as such; its faults are fault.Malformed.
func (r Resolution) Check() error {
	if envelope.Trim(r.ActionID) == "" {
		return fault.InField("action_id", "action_id is required.")
	}
	if envelope.Trim(r.Resolver) == "" {
		return fault.InField("resolver", "resolver is required.")
	}
	if r.Decision != StateAccepted && r.Decision != StateRejected {
		return fault.InField("decision", "Approval decision must be accepted or rejected.")
	}
	return nil
}

// Resolve carries a decision out and gives what the handler returned. Faults: Malformed for the decision itself,
// NotFound, Forbidden, Conflict if it was decided before, Gone if its time is over, Unsupported if nothing handles its
// kind. An error of the handler is recorded with the action and returned.
func (r Resolver) Resolve(ctx context.Context, resolution Resolution) (any, error) {
	if err := resolution.Check(); err != nil {
		return nil, err
	}
	action, err := r.Store.Get(ctx, resolution.ActionID, true)
	if err != nil {
		return nil, err
	}
	handler, err := r.permitted(ctx, action, resolution)
	if err != nil {
		return nil, err
	}
	moment := r.now()
	switch won, err := r.Store.RecordResolution(ctx, resolution, moment); {
	case err != nil:
		return nil, err
	case !won:
		return nil, r.lost(ctx, action, moment)
	}
	return r.apply(ctx, handler, action, resolution)
}

// permitted asks the handler before it says anything about the state: strangers learn nothing of it.
func (r Resolver) permitted(ctx context.Context, action PendingAction, resolution Resolution) (ActionHandler, error) {
	handler := r.Handlers[action.Kind]
	if handler == nil {
		return nil, fault.Newf(fault.Unsupported, "Nothing handles actions of kind %q.", action.Kind)
	}
	allowed, err := handler.CanResolve(ctx, action, resolution)
	if err != nil {
		return nil, err
	}
	if !allowed {
		return nil, fault.New(fault.Forbidden, "You may not decide about this action.")
	}
	return handler, nil
}

func (r Resolver) lost(ctx context.Context, action PendingAction, moment time.Time) error {
	if !action.Final() && action.ExpiredAt(moment) {
		return fault.New(fault.Gone, "The time to decide about this action is over.")
	}
	if current, err := r.Store.Get(ctx, action.ActionID, true); err == nil {
		action = current
	}
	if action.Status == StateExpired || action.Status == StateDeleted {
		return fault.Newf(fault.Gone, "This action is %s.", action.Status)
	}
	return fault.Newf(fault.Conflict, "This action was decided before: %s.", action.Status)
}

func (r Resolver) apply(ctx context.Context, handler ActionHandler, action PendingAction, resolution Resolution) (any, error) {
	result, failure := handler.Apply(ctx, action, resolution)
	text := ""
	if failure != nil {
		result, text = nil, publicText(failure)
	}
	if err := r.Store.RecordResult(context.WithoutCancel(ctx), action.ActionID, result, text); err != nil && failure == nil {
		return result, err
	}
	return result, failure
}

func (r Resolver) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
