package chat

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// OperatorChat is the body of POST /api/v1/agents/{agent}/chat. The answer is that of POST /v1/chat, as a stream too; with the header
// Last-Event-ID it is the rest of a stream.
type OperatorChat struct {
	Message  string `json:"message"`
	Session  string `json:"session,omitempty"`  // as an earlier answer named it; empty begins one
	Continue bool   `json:"continue,omitempty"` // in the operator's newest session with the agent, where there is one
	RunID    string `json:"run_id,omitempty"`   // chosen by the client: the same again is the same message
}

// maxOperatorChat bounds the body: a message of 1 MiB with the escapes of JSON.
const maxOperatorChat = 4 << 20

// ServeOperator lets the operator talk to an agent. The caller has checked the token; its scope is exchange.TokenAdmin. The message
// passes every stage that others' messages pass. Errors that it returns were not answered yet.
func (a *Adapter) ServeOperator(w http.ResponseWriter, r *http.Request, agent string, token exchange.Token) error {
	err := a.rest.serveOperator(w, r, agent, token)
	requests.WithLabelValues("operator", outcomeOf(err)).Inc()
	return err
}

// Say hands a message of the operator to an agent, as ServeOperator does, and returns the id of its turn without waiting for the answer.
func (a *Adapter) Say(ctx context.Context, agent string, token exchange.Token, said OperatorChat) (string, error) {
	body, err := json.Marshal(said)
	if err != nil {
		return "", err
	}
	found, err := a.rest.acceptOperator(ctx, agent, token, said, body, "")
	requests.WithLabelValues("operator", outcomeOf(err)).Inc()
	return found.turn.ID, err
}

func (a *restAPI) serveOperator(w http.ResponseWriter, r *http.Request, agent string, token exchange.Token) error {
	httpserver.Proven(r)
	body, err := httpserver.ReadBody(r, maxOperatorChat)
	if err == nil {
		err = httpserver.RefuseDuplicates(body)
	}
	if err != nil {
		return err
	}
	var wanted OperatorChat
	if err := json.Unmarshal(body, &wanted); err != nil {
		return fault.Wrap(fault.Malformed, `send {"message":"…"}, and perhaps "session", "continue" and "run_id"`, err)
	}

	found, err := a.acceptOperator(r.Context(), agent, token, wanted, body, r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	return a.answerChat(w, r, found)
}

// acceptOperator brings a message of the operator into the engine.
func (a *restAPI) acceptOperator(ctx context.Context, agent string, token exchange.Token, wanted OperatorChat, body []byte, lastEvent string) (run, error) {
	q, err := a.questionOf(map[string]any{"agent": agent, "message": wanted.Message, "session": wanted.Session, "run_id": wanted.RunID}, body)
	if err != nil {
		return run{}, err
	}

	q.who = caller{token: &token}
	if err := a.access.admit(q.who, q.agent); err != nil {
		return run{}, err
	}
	if wanted.Continue && wanted.Session == "" {
		if q.input.SessionID, err = a.sessions.newest(ctx, q); err != nil {
			return run{}, err
		}
	}
	return a.messages.accept(ctx, q, lastEvent)
}

// lookedBack is how many messages of a caller are looked at for the newest session: those that were deleted have none.
const lookedBack = 50

// newest returns the session of the caller's newest message to an agent by chat; empty where there is none.
func (s *sessions) newest(ctx context.Context, q question) (string, error) {
	turns, err := s.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: q.agent.Name, Principal: s.access.sender(q.who, q.agent, "").Principal(), ReceivedVia: normalized.ViaA2A, ByArrival: true, Limit: lookedBack,
	})
	if err != nil {
		return "", err
	}
	for _, turn := range turns {
		if kept := routeOf(turn); kept.Chat && kept.Session != "" {
			return kept.Session, nil
		}
	}
	return "", nil
}

const operatorName = "operator"

// operatorSender is what a token of the operator API proves to an agent. Its principal is that under which the operator has sessions
// elsewhere.
func (a *access) operatorSender(token exchange.Token, agent exchange.AgentProfile) normalized.Sender {
	name := operatorName
	if slices.ContainsFunc(a.options.Directory.Agents(), func(one exchange.AgentProfile) bool { return one.Name == name }) {
		name += "-" + token.ID
	}
	return normalized.Sender{
		Address: identity.Stated(identity.Address{Local: name, Domain: a.options.Domain}.String()), DisplayName: "Operator",
		AuthMethod: normalized.AuthA2AOAuth, Verified: true, KeyID: token.ID,
		Identities: []identity.Evidence{{
			Subject: operatorName + ":" + token.ID, Issuer: a.options.Domain,
			Method: identity.MethodLocalOperator, Assurance: identity.AssuranceAgent,
			Audience: identity.Audience{agent.Address}, IssuedAt: identity.Now(),
			Source: &identity.Source{Transport: normalized.ViaA2A},
			Proof:  identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: a.options.Domain, Addressed: identity.AddressedRequest, TokenID: token.ID},
		}},
	}
}
