package pull

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

const (
	maxFailBytes = 16 << 10
	maxAfter     = 24 * time.Hour // the longest pause that a program can ask for
)

// holding is a lease that a request names.
type holding struct {
	agent *Agent
	run   string
	until time.Time
	end   *end // the run is over
}

// held finds the lease of a request: that of this turn of this agent. gone is the answer when there is none.
func (s *Service) held(r *http.Request, agent *Agent, gone fault.Kind) (holding, error) {
	id, err := uuid.Parse(r.URL.Query().Get("lease"))
	if err != nil {
		return holding{}, fault.InField("lease", "must be the lease.id of the turn, as a query parameter")
	}

	found, err := s.rows.status(r.Context(), id.String())
	if err != nil {
		return holding{}, unavailable("looking at the lease", err)
	}

	of := found.claim
	if of == nil || of.Closed || of.Agent != agent.name || of.Turn != httpserver.Param(r, "turn") {
		return holding{}, over(gone)
	}
	return holding{agent: agent, run: id.String(), until: of.Until, end: found.end}, nil
}

// working is held for a run that is not over.
func (s *Service) working(r *http.Request, agent *Agent, gone fault.Kind) (holding, error) {
	lease, err := s.held(r, agent, gone)
	if err == nil && lease.end != nil {
		err = over(gone)
	}
	return lease, err
}

type leaseAnswer struct {
	Lease Lease `json:"lease"`
}

// handHeartbeat prolongs the lease.
func (s *Service) handHeartbeat(w http.ResponseWriter, r *http.Request, agent *Agent) error {
	lease, err := s.working(r, agent, fault.Gone)
	if err != nil {
		return err
	}
	if err := s.rows.beat(r.Context(), lease.run, lease.until); err != nil {
		return unavailable("prolonging the lease", err)
	}

	s.notifier.notifyAll(runTopic(lease.run))
	httpserver.WriteJSON(w, http.StatusOK, leaseAnswer{leaseOf(lease.run, agent.settings.Lease)})
	return nil
}

// ending is what a program hears when it ended a run.
type ending struct {
	State    string `json:"state"` // "answered", "retry" or "gave_up"
	Repeated bool   `json:"repeated,omitempty"`
}

// handAnswer takes the whole answer; without a body it is what the deltas said. The same body again is acknowledged
// again.
func (s *Service) handAnswer(w http.ResponseWriter, r *http.Request, agent *Agent) error {
	lease, err := s.held(r, agent, fault.Conflict)
	if err != nil {
		return err
	}

	httpserver.Proven(r)
	body, err := httpserver.ReadBody(r, MaxAnswerBytes)
	if err != nil {
		return unread(err)
	}

	how := end{Outcome: answered, Digest: digest(body)}
	if lease.end == nil {
		response, err := s.response(r, lease, body)
		if err != nil {
			return err
		}
		how.Response, how.Left = &response, response.Left
	}

	return s.finish(w, r, lease, how)
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// response reads the answer and holds it to the contract, while the program can still mend it.
func (s *Service) response(r *http.Request, lease holding, body []byte) (normalized.Response, error) {
	question, err := s.question(r, lease)
	if err != nil {
		return normalized.Response{}, err
	}

	var response normalized.Response
	if len(body) == 0 {
		response, err = s.grown(r.Context(), lease)
	} else {
		response, err = normalized.DecodeResponse(body, s.options.Limits)
	}
	if err != nil {
		return response, err
	}

	if response, err = response.Completed(question, s.options.Limits, normalized.Left{}); err != nil {
		return response, err
	}
	return response, s.options.Files(r.Context(), httpserver.Param(r, "turn"), response.Parts)
}

func (s *Service) question(r *http.Request, lease holding) (normalized.Message, error) {
	document, found, err := s.options.Mailbox.Get(r.Context(), requestsSpace, lease.run)
	if err != nil {
		return normalized.Message{}, unavailable("reading the turn", err)
	}
	if !found {
		return normalized.Message{}, over(fault.Conflict)
	}

	var request struct {
		Message normalized.Message `json:"message"`
	}
	return request.Message, decode(document, &request)
}

// failure is why a program returns a turn.
type failure struct {
	Retry  *bool   `json:"retry"`            // true = try again, false = give the turn up
	After  float64 `json:"after,omitempty"`  // seconds
	Reason string  `json:"reason,omitempty"` // for the operator
}

// handFail returns the turn back.
func (s *Service) handFail(w http.ResponseWriter, r *http.Request, agent *Agent) error {
	lease, err := s.held(r, agent, fault.Conflict)
	if err != nil {
		return err
	}

	body, err := httpserver.ReadBody(r, maxFailBytes)
	if err != nil {
		return unread(err)
	}

	var given failure
	if err := json.Unmarshal(body, &given); err != nil {
		return fault.New(fault.Malformed, `want {"retry": true or false, "after": seconds, "reason": "text for the operator"}`)
	}

	switch {
	case given.Retry == nil:
		return fault.InField("retry", "is required: true = try again, false = give the turn up")
	case given.After < 0 || given.After > maxAfter.Seconds():
		return fault.InField("after", "must be 0 to 86400 seconds")
	}

	how := end{Outcome: gaveUp, Reason: upstream.Excerpt(given.Reason, 500), Digest: digest(body)}
	if *given.Retry {
		how.Outcome, how.After = retried, time.Duration(given.After*float64(time.Second))
	}

	return s.finish(w, r, lease, how)
}

// finish ends the run, once: the first answer counts, its repeat is acknowledged, everything else comes too late.
func (s *Service) finish(w http.ResponseWriter, r *http.Request, lease holding, how end) error {
	before := lease.end
	if before == nil {
		var err error
		if before, err = s.rows.end(r.Context(), lease.run, how, lease.until); err != nil {
			return unavailable("ending the turn", err)
		}
	}
	if before != nil && (before.Outcome != how.Outcome || before.Digest != how.Digest) {
		return over(fault.Conflict)
	}

	s.ended(lease.agent, lease.run)
	httpserver.WriteJSON(w, http.StatusOK, ending{State: how.Outcome, Repeated: before != nil})
	return nil
}

// unread classes a body that did not come whole.
func unread(err error) error {
	_, large := errors.AsType[*http.MaxBytesError](err)
	if _, known := errors.AsType[*fault.Fault](err); large || known {
		return err
	}
	return fault.Wrap(fault.Malformed, "the body did not come whole", err)
}

// Request is a turn as a program takes it: the body of a webhook with a lease. SentAt is when this attempt was offered.
type Request struct {
	agents.Document

	Lease Lease `json:"lease"`
}

// Lease is the right to answer one attempt of a turn. It ends when the program shows no sign of life for so many seconds.
type Lease struct {
	ID      string `json:"id"`
	Seconds int    `json:"seconds"`
}

func leaseOf(id string, length time.Duration) Lease {
	return Lease{ID: id, Seconds: int(length / time.Second)}
}

func requestOf(turn agents.Turn, lease Lease) ([]byte, error) {
	document, err := json.Marshal(Request{Document: turn.Document(), Lease: lease})
	if err != nil {
		return nil, fmt.Errorf("encode the turn for a program: %w", err)
	}
	return document, nil
}
