package clienttool

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

var (
	calls = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_client_tool_calls_total", Help: "Calls of programs that execute tools, by operation and outcome (done, duplicate, refused).",
	}, []string{"operation", "outcome"})
	waiters = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_client_tool_waiters", Help: "Programs that wait for tool requests on this node.",
	})
)

// maxDepth bounds how deep a submitted result nests: it becomes part of documents with limits of their own.
const maxDepth = 32

// Routes returns the HTTP face of the client tools of all agents: the operations of the agent runtime contract, section 5.
func (s *Service) Routes() []httpserver.Route {
	list := "/v1/tools/{agent}/requests"
	one := list + "/{request}"
	return []httpserver.Route{
		{Method: http.MethodGet, Pattern: "/v1/tools/{agent}/policy", Handler: s.authorized("policy", s.handPolicy)},
		{Method: http.MethodGet, Pattern: list, Handler: s.authorized("list", s.handList)},
		{Method: http.MethodGet, Pattern: list + "/events", Handler: s.authorized("events", s.handEvents)},
		{Method: http.MethodGet, Pattern: one, Handler: s.authorized("get", s.handGet)},
		{Method: http.MethodPost, Pattern: one + "/submit", Handler: s.authorized("submit", s.handSubmit)},
		{Method: http.MethodPost, Pattern: one + "/timeout", Handler: s.authorized("timeout", s.handTimeout)},
		{Method: http.MethodPost, Pattern: one + "/cancel", Handler: s.authorized("cancel", s.handCancel)},
	}
}

// caller is a program with a token for an agent.
type caller struct {
	agent *agent
	by    string // for the timeline
}

type handler func(w http.ResponseWriter, r *http.Request, c caller) error

// authorized finds the agent of a request that shows a token for it. Who may not see its requests gets one and the same
// answer, whether there is such an agent or not.
func (s *Service) authorized(operation string, handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.verify(r)
		if err == nil {
			err = handle(w, r, c)
		}
		if err == nil {
			return
		}

		calls.WithLabelValues(operation, "refused").Inc()
		if fault.Is(err, fault.Unauthenticated) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="tools"`)
		}
		writeError(w, err)
	})
}

// writeError tells the contract's errors with its codes, all others as everywhere.
func writeError(w http.ResponseWriter, err error) {
	known, is := errors.AsType[*request.Error](err)
	if !is {
		httpserver.WriteFault(w, err)
		return
	}
	httpserver.WriteError(w, statusOf(known), httpserver.ErrorDetail{Code: known.Code, Message: known.Reason})
}

func statusOf(known *request.Error) int {
	switch known.Reason {
	case request.ReasonNotFound:
		return http.StatusNotFound
	case request.ReasonNotPending:
		return http.StatusConflict
	}
	return http.StatusBadRequest
}

// lifecycle is the requests of an agent as a program outside sees them.
func (s *Service) lifecycle(c caller) request.Lifecycle {
	return forDelegated(s.requests.ToolRequests(c.agent.name, c.by))
}

// handGet returns one request, whatever its status.
func (s *Service) handGet(w http.ResponseWriter, r *http.Request, c caller) error {
	found, err := s.lifecycle(c).Store.Get(r.Context(), httpserver.Param(r, "request"))
	if err != nil {
		return unavailable("reading the request", err)
	}
	if found == nil {
		return &request.Error{Code: request.CodeRequest, Reason: request.ReasonNotFound}
	}
	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"request": found})
	return nil
}

// handSubmit takes {"success", "result" or "error", "metadata"}.
func (s *Service) handSubmit(w http.ResponseWriter, r *http.Request, c caller) error {
	raw, err := readBody(r)
	if err != nil {
		return err
	}

	id := httpserver.Param(r, "request")
	if named, is := raw["request_id"]; is && named != id {
		return &request.Error{Code: request.CodeResult, Reason: "request_id must be that of the address, or be left out"}
	}

	raw["request_id"] = id
	request.FromOutside(raw)
	answer, err := s.lifecycle(c).Submit(r.Context(), raw, nil, nil)
	return s.answer(w, "submit", answer, err)
}

// handTimeout ends a request whose tool takes too long.
func (s *Service) handTimeout(w http.ResponseWriter, r *http.Request, c caller) error {
	answer, err := s.lifecycle(c).Timeout(r.Context(), httpserver.Param(r, "request"), nil, nil)
	return s.answer(w, "timeout", answer, err)
}

// handCancel takes a request back: the program does not execute it.
func (s *Service) handCancel(w http.ResponseWriter, r *http.Request, c caller) error {
	answer, err := forDelegated(s.requests.ToolCancels(c.agent.name, c.by)).Cancel(r.Context(), httpserver.Param(r, "request"), nil, nil)
	return s.answer(w, "cancel", answer, err)
}

func (s *Service) answer(w http.ResponseWriter, operation string, answer *request.Envelope, err error) error {
	if err != nil {
		return unavailable("ending the request", err)
	}

	outcome := "done"
	if answer.Duplicate {
		outcome = "duplicate"
	}

	calls.WithLabelValues(operation, outcome).Inc()
	httpserver.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// unavailable keeps refusals and makes everything else a fault that the program may try again.
func unavailable(doing string, cause error) error {
	if _, is := errors.AsType[*request.Error](cause); is {
		return cause
	}
	if _, is := errors.AsType[*fault.Fault](cause); is {
		return cause
	}
	return fault.Wrap(fault.Unavailable, doing+" is not possible right now; try again", cause)
}

// readBody reads the object that a program hands in.
func readBody(r *http.Request) (map[string]any, error) {
	httpserver.Proven(r)
	body, err := httpserver.ReadBody(r, MaxBodyBytes)
	if err != nil {
		return nil, err
	}

	given, err := value.Decode(body, value.Limits{Bytes: MaxBodyBytes, Depth: maxDepth})
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, "the body is not JSON of at most 32 levels", err)
	}

	object, is := given.(map[string]any)
	if !is {
		return nil, fault.New(fault.Malformed, `want {"success": true, "result": …} or {"success": false, "error": "…"}`)
	}

	return object, nil
}
