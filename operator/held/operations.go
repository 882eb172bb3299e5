package held

import (
	"cmp"
	"context"
	"net/http"

	"inbox/exchange"
	"inbox/operator/operation"
)

// Operations are what programs of operators call.
func Operations() []operation.Operation[*Service] {
	return []operation.Operation[*Service]{
		operation.Declare(operation.Operation[*Service]{
			Method: http.MethodGet, Path: "/api/v1/held", Summary: "Messages that wait for the operator; with dropped=true those that were dropped and can be restored",
		}, list),
		operation.Declare(deciding("release", "Let the agent answer a held message"), release),
		operation.Declare(deciding("drop", "Refuse a held message"), drop),
		operation.Declare(deciding("restore", "Put a dropped message back on hold"), restore),
	}
}

func deciding(act, summary string) operation.Operation[*Service] {
	return operation.Operation[*Service]{
		Method: http.MethodPost, Path: "/api/v1/held/{turn}/" + act, Summary: summary, Role: exchange.RoleWork, Errors: []int{http.StatusConflict},
		Example: operation.Reason{Reason: "not our subject"}, Hint: `send nothing, or {"reason":"…"}`,
	}
}

type listInput struct {
	Agent   string `query:"agent"`
	Dropped bool   `query:"dropped" doc:"true: those that were dropped and can be restored, instead."`
	operation.Page
}

func list(ctx context.Context, s *Service, _ operation.Caller, in listInput) (exchange.List[exchange.TurnRecord], error) {
	read := s.List
	if in.Dropped {
		read = s.Dropped
	}
	return operation.Cut(in.Page, exchange.TurnCursor, func(limit int) ([]exchange.TurnRecord, error) { return read(ctx, in.Agent, in.Before, limit) })
}

type message struct {
	Turn string `path:"turn"`
}

func release(ctx context.Context, s *Service, _ operation.Caller, in message) (operation.None, error) {
	return operation.None{}, s.Release(ctx, in.Turn)
}

func drop(ctx context.Context, s *Service, _ operation.Caller, in struct {
	message
	operation.WithReason
},
) (operation.None, error) {
	why, err := in.Why()
	if err != nil {
		return operation.None{}, err
	}
	return operation.None{}, s.Drop(ctx, in.Turn, cmp.Or(why, DroppedByOperator))
}

// DroppedByOperator is the reason of a message that was dropped without one.
const DroppedByOperator = "dropped by the operator"

func restore(ctx context.Context, s *Service, _ operation.Caller, in message) (operation.None, error) {
	return operation.None{}, s.Restore(ctx, in.Turn)
}
