package clienttool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const maxBearerBytes = 512

func (s *Service) verify(r *http.Request) (caller, error) {
	refused := fault.New(fault.Unauthenticated, "a bearer token for the tools of this agent is needed; see: inbox tokens create --tools")
	bearer := bearerOf(r)
	if bearer == "" {
		return caller{}, refused
	}
	token, found, err := s.tokenOf(r.Context(), bearer)
	if err != nil {
		return caller{}, err
	}
	name := httpserver.Param(r, "agent")
	if !found || !token.RevokedAt.IsZero() || token.Scope != exchange.TokenTools || name == "" || !strings.EqualFold(token.Agent, name) {
		return caller{}, refused
	}
	agent, known := s.find(name)
	if !known { // told to nobody but the holder of a token for this name
		return caller{}, fault.New(fault.NotFound, "this agent has no client tools: its configuration has no [[agents.client_tools]]")
	}
	return caller{agent: agent, by: "token:" + token.Name}, nil
}

func (s *Service) tokenOf(ctx context.Context, bearer string) (exchange.Token, bool, error) {
	sum := sha256.Sum256([]byte(bearer))
	token, found, err := s.tokens.TokenByHash(ctx, hex.EncodeToString(sum[:]))
	if err != nil {
		return token, false, unavailable("checking the token", err)
	}
	return token, found, nil
}
