package console

import (
	"context"
	"encoding/json"

	"inbox/engine/demand"
)

// Demand is what a reader of a demand's address may see of it.
type Demand = demand.View

// Demands is what agents ask back. A token is the secret in the address of one demand; its holder may decide.
// Errors of all methods: fault.NotFound (no such demand), fault.Gone (expired), fault.Conflict (answered already, maybe
// at this moment), fault.Malformed, fault.Forbidden and fault.Unauthenticated (a proof is bad), fault.Unavailable (a
// service that has to be asked is down). Beside an error about a demand that exists the demand is given, too.
type Demands interface {
	// Show changes nothing.
	Show(ctx context.Context, token string) (Demand, error)
	// Decide grants or declines.
	Decide(ctx context.Context, token string, grant bool) (Demand, error)
	// BeginLogin returns the address of the login service and the value of the cookie that binds the login to this browser.
	BeginLogin(ctx context.Context, token, login string) (redirect, binding string, err error)
	// FinishLogin takes what the login service sent back through the browser; an empty code means that the person turned
	// back there.
	FinishLogin(ctx context.Context, state, code, binding string) (Demand, error)
	// Pay offers an x402 payment payload.
	Pay(ctx context.Context, token string, payment json.RawMessage) (Demand, error)
}
