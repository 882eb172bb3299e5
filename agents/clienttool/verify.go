package clienttool

import (
	"net/http"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

func (s *Service) verify(r *http.Request) (caller, error) {
	refused := fault.New(fault.Unauthenticated, "a bearer token for the tools of this agent is needed; see: inbox tokens create --tools")
	shown := bearer.Of(r)
	if shown == "" {
		return caller{}, refused
	}

	token, found, err := s.tokens.Find(r.Context(), shown)
	if err != nil {
		return caller{}, unavailable("checking the token", err)
	}

	name := httpserver.Param(r, "agent")
	if !found || !token.Valid(time.Now()) || token.Scope != exchange.TokenTools || name == "" || !strings.EqualFold(token.Agent, name) {
		return caller{}, refused
	}

	agent, known := s.find(name)
	if !known { // told only to the holder of a token for this name
		return caller{}, fault.New(fault.NotFound, "this agent has no client tools: its configuration has no [[agents.client_tools]]")
	}

	return caller{agent: agent, by: "token:" + token.Name}, nil
}
