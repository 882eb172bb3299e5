package console

import (
	"net/http"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// accessBody asks whether a sender would be let in. Without method and subject the sender proves what the channel proves, or nothing.
type accessBody struct {
	Address   string `json:"address,omitempty"`
	Channel   string `json:"channel,omitempty"`
	Purpose   string `json:"purpose,omitempty"` // message, tool:<name> or skill:<id>
	Issuer    string `json:"issuer,omitempty"`  // empty = this server
	Method    string `json:"method,omitempty"`
	Subject   string `json:"subject,omitempty"` // empty = what follows from the address
	Assurance string `json:"assurance,omitempty"`
	Automatic bool   `json:"automatic,omitempty"` // automatic mail, such as a vacation notice
}

// createdToken is a token with its secret, which is shown only here.
type createdToken struct {
	exchange.Token

	Secret string `json:"secret"`
}

// followBody decides about one actor who waits to follow an agent.
type followBody struct {
	Agent  string `json:"agent"`
	Actor  string `json:"actor"`
	Accept bool   `json:"accept"`
}

func (a *API) agentRoutes() []httpserver.Route {
	return []httpserver.Route{
		a.route(http.MethodPost, "/api/v1/agents", a.addAgent),
		a.route(http.MethodGet, "/api/v1/agents/{agent}", a.agent),
		a.route(http.MethodDelete, "/api/v1/agents/{agent}", a.removeAgent),
		a.route(http.MethodGet, "/api/v1/agents/{agent}/examination", a.examineAgent),
		a.route(http.MethodPut, "/api/v1/agents/{agent}/pause", a.pauseAgent),
		a.route(http.MethodDelete, "/api/v1/agents/{agent}/pause", a.resumeAgent),
		a.route(http.MethodPost, "/api/v1/agents/{agent}/access-check", a.checkAccess),
		a.route(http.MethodPost, "/api/v1/tokens", a.createToken),
		a.route(http.MethodDelete, "/api/v1/tokens/{token}", a.revokeToken),
		a.route(http.MethodPost, "/api/v1/follows/decide", a.decideFollow),
	}
}

func (a *API) agent(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Agents.Details(r.Context(), httpserver.Param(r, "agent"))
}

func (a *API) addAgent(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted operator.NewAgent
	if err := readOptional(w, r, maxReasonBody, &wanted, `send {"name":"…","kind":"…"}`); err != nil {
		return nil, err
	}
	return a.operator.AddAgent(r.Context(), wanted)
}

func (a *API) removeAgent(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.RemoveAgent(r.Context(), httpserver.Param(r, "agent"))
}

func (a *API) examineAgent(_ http.ResponseWriter, r *http.Request) (any, error) {
	return whole(a.operator.ExamineAgent(r.Context(), httpserver.Param(r, "agent")))
}

func (a *API) pauseAgent(w http.ResponseWriter, r *http.Request) (any, error) {
	why, err := reason(w, r)
	if err != nil {
		return nil, err
	}
	return nil, a.operator.Pauses.Begin(r.Context(), httpserver.Param(r, "agent"), why)
}

func (a *API) resumeAgent(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Pauses.End(r.Context(), httpserver.Param(r, "agent"))
}

func (a *API) checkAccess(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked accessBody
	if err := readOptional(w, r, maxReasonBody, &asked, `send {"address":"@name@server.example"}, and perhaps "channel", "method" and "subject"`); err != nil {
		return nil, err
	}
	return a.operator.Why(r.Context(), operator.AccessQuestion{
		Agent: httpserver.Param(r, "agent"), Purpose: asked.Purpose, Address: asked.Address,
		Issuer: asked.Issuer, Method: asked.Method, Subject: asked.Subject, Assurance: asked.Assurance, Automatic: asked.Automatic,
	}, asked.Channel)
}

func (a *API) createToken(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted operator.NewToken
	if err := readOptional(w, r, maxReasonBody, &wanted, `send {"name":"…","scope":"peer"}`); err != nil {
		return nil, err
	}
	secret, token, err := a.operator.Tokens.New(r.Context(), wanted)
	return createdToken{token, secret}, err
}

func (a *API) revokeToken(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Tokens.Revoke(r.Context(), httpserver.Param(r, "token"))
}

func (a *API) decideFollow(w http.ResponseWriter, r *http.Request) (any, error) {
	var decided followBody
	if err := readOptional(w, r, maxReasonBody, &decided, `send {"agent":"…","actor":"https://…","accept":true}`); err != nil {
		return nil, err
	}
	if decided.Agent == "" || decided.Actor == "" {
		return nil, fault.New(fault.Malformed, "agent and actor are needed")
	}
	return nil, a.operator.Follows.Decide(r.Context(), decided.Agent, decided.Actor, decided.Accept)
}
