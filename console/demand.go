package console

import (
	"context"
	"encoding/json"
	"time"

	"inbox/policypart"
)

// Demand is what a reader of a demand's address may see of it. It has the fields of the engine's view, so that the root
// package converts one into the other.
type Demand struct {
	ID           string
	Token        string          // the secret of its address
	Agent        string          // name of the agent that asks
	AgentAddress string          // @agent@domain
	Kind         string          // of the part
	Purpose      string          // "" or policypart.Purpose…
	Status       string          // policypart.Status…; StatusExpired as soon as the time is over
	Open         bool            // it can be decided now
	Part         policypart.Part // without url and state
	Asker        string          // who was asked, or who asks where an approver decides: the subject of an identity, or an address
	Locale       string          // of the asker's profile, BCP 47; may be empty
	IssuedAt     time.Time
	ExpiresAt    time.Time
	Outcome      string            // policypart.Outcome… once it is settled
	Logins       []string          // names for BeginLogin, while it is open
	Accepts      []json.RawMessage // x402 requirements, while it is open and unpaid
	Word         string            // of a link that was agreed to: what the other address has to send to the agent

	// Of an approval, whose reader is an approver and not the asker.
	Summary  string // what is to be approved; empty for an answer that is held back
	Tool     string
	Preview  json.RawMessage // what would be done
	Draft    string          // the answer that is held back, as text
	Question string          // the begin of the asker's message
	Reason   string          // of a denial
}

// Demands is what agents ask back. A token is the secret in the address of one demand; who has it may decide.
// Errors of all methods: fault.NotFound (no such demand), fault.Gone (expired), fault.Conflict (answered already, maybe
// at this moment), fault.Malformed, fault.Forbidden and fault.Unauthenticated (a proof is bad), fault.Unavailable (a
// service that has to be asked is down). Beside an error about a demand that exists the demand is given, too.
type Demands interface {
	// Show changes nothing.
	Show(ctx context.Context, token string) (Demand, error)
	// Decide grants or declines.
	Decide(ctx context.Context, token string, grant bool) (Demand, error)
	// BeginLogin gives the address of the login service and the value of the cookie that binds the login to this browser.
	BeginLogin(ctx context.Context, token, login string) (redirect, binding string, err error)
	// FinishLogin takes what the login service sent back through the browser; an empty code means that the person turned
	// back there.
	FinishLogin(ctx context.Context, state, code, binding string) (Demand, error)
	// Pay offers an x402 payment payload.
	Pay(ctx context.Context, token string, payment json.RawMessage) (Demand, error)
}
