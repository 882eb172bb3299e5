package pull

import (
	"net/http"
	"strings"

	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// authorized finds the agent of a request that shows a token for it. Who may not take turns gets one and the same
// answer, whether there is such an agent or not.
func (s *Service) authorized(handle func(http.ResponseWriter, *http.Request, *Agent) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, err := s.verify(r)
		if err == nil {
			err = handle(w, r, agent)
		}
		if err == nil {
			return
		}
		if fault.Is(err, fault.Unauthenticated) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="turns"`)
		}
		httpserver.WriteFault(w, err)
	})
}

func (s *Service) verify(r *http.Request) (*Agent, error) {
	refused := fault.New(fault.Unauthenticated, "a bearer token for this agent is needed; the operator makes one")
	shown := bearer.Of(r)
	if shown == "" {
		return nil, refused
	}
	token, found, err := s.tokens.Find(r.Context(), shown)
	if err != nil {
		return nil, unavailable("checking the token", err)
	}
	name := httpserver.Param(r, "agent")
	if !found || !token.RevokedAt.IsZero() || token.Scope != s.options.Scope || !strings.EqualFold(token.Agent, name) || name == "" {
		return nil, refused
	}
	agent, known := s.find(name)
	if !known { // told to nobody but the holder of a token for this name
		return nil, fault.New(fault.NotFound, "this agent gives no turns away: it is not of kind pull")
	}
	return agent, nil
}
