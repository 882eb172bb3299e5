package console

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"inbox/identity"
	"inbox/internal/facilitator"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/policypart"
)

// demandExtras stand beside a demand for programs: what clients of x402 and of logins read.
type demandExtras struct {
	Logins      []string          `json:"logins,omitempty"`
	X402Version int               `json:"x402Version,omitempty"`
	Accepts     []json.RawMessage `json:"accepts,omitempty"`
	Error       string            `json:"error,omitempty"`

	// Of an approval: what the part does not say of it, and what a grant brings back.
	Draft    string `json:"draft,omitempty"`
	Question string `json:"question,omitempty"`
	Shown    string `json:"shown,omitempty"`
}

// beside writes the extras into the body of the part.
func (e demandExtras) beside(body []byte) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	encoded, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(encoded, &members)
	}
	if err != nil {
		return nil, err
	}
	return identity.AppendMembers(body, members)
}

// document answers a program with the demand, under the status and with the headers of its kind (message contract, section 8).
func (p *PolicyPages) document(w http.ResponseWriter, demand Demand, note string) {
	if !demand.Open {
		writeState(w, showStatus(demand), demand)
		return
	}

	part := demand.Part
	part.URL = p.publicURL + "/policy/" + demand.Token
	part.AuthChallenges = challenges(demand, part.URL)
	extras := demandExtras{Logins: demand.Logins, Error: note}
	if demand.Purpose == policypart.PurposeApproval {
		extras.Draft, extras.Question, extras.Shown = demand.Draft, demand.Question, demand.Shown
	}
	if demand.Kind == policypart.PaymentRequired {
		extras.X402Version, extras.Accepts = facilitator.VersionOf(demand.Accepts), listed(demand.Accepts)
		extras.Error = orElse(note, "a payment is required; send it by POST in the header "+paymentHeader)
	}

	body, err := part.HTTPBody(demand.AgentAddress)
	if err == nil {
		body, err = extras.beside(body)
	}
	if err != nil {
		httpserver.WriteFault(w, err)
		return
	}

	maps.Copy(w.Header(), part.HTTPHeader())
	httpserver.WriteJSON(w, policypart.HTTPStatus(demand.Kind), json.RawMessage(body))
}

// challenges returns those of a demand with its address as the realm: stored ones have its id, which opens nothing.
func challenges(demand Demand, address string) []policypart.Challenge {
	list := slices.Clone(demand.Part.AuthChallenges)
	for i, challenge := range list {
		if strings.HasSuffix(challenge.Params["realm"], "/policy/"+demand.ID) {
			list[i].Params = maps.Clone(challenge.Params)
			list[i].Params["realm"] = address
		}
	}
	return list
}

// stateBody is what became of a demand, for programs.
type stateBody struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Purpose   string    `json:"purpose,omitempty"`
	Status    string    `json:"status"`
	Outcome   string    `json:"outcome,omitempty"`
	Word      string    `json:"word,omitempty"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

func writeState(w http.ResponseWriter, status int, d Demand) {
	httpserver.WriteJSON(w, status, stateBody{
		ID: d.ID, Kind: d.Kind, Purpose: d.Purpose, Status: d.Status, Outcome: d.Outcome, Word: d.Word,
		IssuedAt: d.IssuedAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(),
	})
}

func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// failJSON answers a program. A payment that was not good enough is answered with the terms again, as x402 clients
// expect it; other failures with the code of the check that failed.
func (p *PolicyPages) failJSON(w http.ResponseWriter, demand Demand, err error) {
	found := fault.Of(err)
	refusal, refused := errors.AsType[*policypart.Refusal](err)
	switch {
	case demand.Open && demand.Kind == policypart.PaymentRequired && found.Kind == fault.Forbidden:
		p.document(w, demand, found.Public)
	case refused:
		httpserver.WriteError(w, failStatus(found.Kind), httpserver.ErrorDetail{Code: refusal.Code, Message: found.Public})
	case found.Kind == fault.Unauthenticated:
		httpserver.WriteFault(w, fault.Wrap(fault.Forbidden, found.Public, err))
	default:
		httpserver.WriteFault(w, err)
	}
}

// failStatus is that of the kind; a bad proof is no missing password, so 401 becomes 403.
func failStatus(kind fault.Kind) int {
	if kind == fault.Unauthenticated {
		return http.StatusForbidden
	}
	return httpserver.Status(kind)
}
