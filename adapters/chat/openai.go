package chat

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/reference"
	"inbox/normalized"
)

const surfaceOpenAI = "openai"

// openAI speaks the form of OpenAI's chat completions, so that programs that know it reach our agents: an agent is a model, a
// bearer token an API key. The conversation is what the client sends each time.
type openAI struct {
	*site
	access   *access
	messages *messages
	runs     *runs
	tools    *clientTools
	renderer *renderer
}

// completion is one request for a completion.
type completion struct {
	api     *openAI
	agent   exchange.AgentProfile
	who     caller
	request CompletionRequest
	offered map[string]string // tools that the client executes, with the names that it gave them

	format   *exchange.Format // that the answer has to have; nil = any
	response *response        // of a request for a response; nil for one for a completion

	found    run
	repeated bool // the client answers calls that the agent made by itself
}

// read identifies the caller and decodes the body of a request.
func (a *openAI) read(r *http.Request, into any) (who caller, body []byte, err error) {
	if who, err = a.access.identify(r); err != nil {
		return who, nil, err
	}
	limit := int64(maxCompletionBytes)
	if who.guest() { // the request stays in memory until its answer is there
		limit = largeRequest
	}
	if body, err = a.access.readBodyUpTo(r, who, limit, httpserver.ReadBody); err != nil {
		return who, nil, err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return who, nil, unreadable(err)
	}
	return who, body, nil
}

// serveCompletion is POST /v1/chat/completions.
func (a *openAI) serveCompletion(w http.ResponseWriter, r *http.Request) error {
	c := completion{api: a}
	who, body, err := a.read(r, &c.request)
	if err != nil {
		return err
	}
	c.who = who
	if c.agent, err = a.modelFor(who, c.request.Model); err != nil {
		return err
	}
	if err := c.request.check(); err != nil {
		return err
	}
	if err := c.request.refuse(); err != nil {
		return err
	}
	if c.format, err = c.formatOf(c.request.ResponseFormat, "response_format"); err != nil {
		return err
	}

	if c.offered, err = c.offers(); err != nil {
		return err
	}
	if len(c.request.ending()) > 0 {
		err = c.goOn(r.Context())
	} else {
		err = c.ask(r, body)
	}
	switch {
	case err != nil:
		return err
	case c.request.Stream:
		return a.runs.stream(w, r, c.found, &completionFrames{completion: &c})
	}

	return a.answerCompletion(w, r, &c)
}

// unreadable names the member of a body that has another type than it should, without the names of our own types.
func unreadable(err error) error {
	wrong, is := err.(*json.UnmarshalTypeError) //nolint:errorlint // json.Unmarshal wraps nothing
	switch {
	case !is:
		return fault.Wrap(fault.Malformed, "The body is not JSON.", err)
	case wrong.Field == "":
		return fault.Wrap(fault.Malformed, "The body must be an object of JSON: a request for a chat completion.", err)
	}
	return fault.InField(wrong.Field, "must not be of the type "+wrong.Value)
}

// ask brings a new message to the agent, or finds the run of its repeat.
func (c *completion) ask(r *http.Request, body []byte) error {
	said, err := c.request.conversation(r.Context(), c.agent.Name, c.api.options.Limits)
	if err != nil {
		return err
	}

	q := question{
		agent: c.agent, who: c.who, input: said.input, original: body, request: c.digest(),
		parts: said.parts, earlier: said.earlier, files: said.files, format: c.format,
	}
	if c.response != nil {
		q.response = c.response.note()
		q.input.SessionID = routeOf(c.response.previous).Session
	}
	if key := strings.TrimSpace(r.Header.Get("Idempotency-Key")); key != "" {
		q.input.RunID, q.messageID = "key:"+key, key
	} else if again(r) {
		known, err := c.earlier(r.Context(), q.request)
		if c.found = known; err != nil || known.turn.ID != "" {
			return err
		}
	}

	if err := r.Context().Err(); err != nil {
		return err // who left before anything was kept comes again
	}
	if c.response != nil && c.response.previous.ID != "" {
		return c.goOnFrom(r.Context(), q)
	}
	if c.found, err = c.api.messages.accept(r.Context(), q, ""); err != nil {
		return err
	}
	return c.sameRequest(q)
}

// sameRequest refuses the run of another request.
func (c *completion) sameRequest(q question) error {
	if c.found.route.Request != q.request {
		return fault.New(fault.Conflict, "The Idempotency-Key was used for a request with other messages. Send this one with a key of its own.")
	}

	return nil
}

// again reports whether an SDK of OpenAI repeats a request by itself. They send no key, but count (the header is that of
// Stainless, who generate them).
func again(r *http.Request) bool {
	count, err := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count"))
	return err == nil && count > 0
}

// How far an earlier copy of a repeated request is looked for.
const (
	retryWindow = 15 * time.Minute // SDKs give up on an answer after 10
	retryReach  = 4 * retryWindow  // a run that was repeated, or took long, began earlier
	retryPage   = 100
	retryPages  = 5
)

// earlier finds the newest run of the same request of the same caller; none where there is no such run.
func (c *completion) earlier(ctx context.Context, digest string) (run, error) {
	if c.who.guest() {
		return run{}, nil
	}

	filter := exchange.TurnFilter{
		Agent: c.agent.Name, Principal: c.principal(), ReceivedVia: normalized.ViaA2A, ByArrival: true,
		UpdatedAfter: time.Now().Add(-retryWindow), AcceptedAfter: time.Now().Add(-retryReach), Limit: retryPage + 1,
	}

	for range retryPages {
		turns, err := c.api.options.Turns.Turns(ctx, filter)
		if err != nil {
			return run{}, err
		}

		turns, filter.Before = exchange.NextPage(turns, retryPage, exchange.TurnCursor)
		at := slices.IndexFunc(turns, func(turn exchange.TurnRecord) bool { return routeOf(turn).Request == digest })
		if at >= 0 {
			return run{turn: turns[at], route: routeOf(turns[at])}, nil
		}
		if filter.Before == "" {
			break
		}
	}

	return run{}, nil
}

// principal is who the holder of the token is.
func (c *completion) principal() string {
	return c.api.access.sender(c.who, c.agent, "").Principal()
}

// Model is an agent as a model.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // model
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// ModelList is what GET /v1/models answers.
type ModelList struct {
	Object string  `json:"object"` // list
	Data   []Model `json:"data"`
}

func (a *openAI) model(agent exchange.AgentProfile) Model {
	return Model{agent.Name, "model", agent.CreatedAt.Unix(), a.options.Domain}
}

// serveModels lists the agents that the caller may write to. Who may write to none for want of a good key hears that.
func (a *openAI) serveModels(w http.ResponseWriter, r *http.Request) error {
	who, err := a.access.identify(r)
	if err != nil {
		return err
	}

	list := ModelList{"list", []Model{}}
	var refused error
	for _, agent := range a.options.Directory.Agents() {
		if _, err := a.modelFor(who, agent.Name); err == nil {
			list.Data = append(list.Data, a.model(agent))
		} else if fault.Is(err, fault.Unauthenticated) {
			refused = err
		}
	}

	if len(list.Data) == 0 && refused != nil {
		return refused
	}

	httpserver.WriteJSON(w, http.StatusOK, list)
	return nil
}

func (a *openAI) serveModel(w http.ResponseWriter, r *http.Request) error {
	who, err := a.access.identify(r)
	if err != nil {
		return err
	}

	agent, err := a.modelFor(who, httpserver.Param(r, "model"))
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, a.model(agent))
	return nil
}

// modelFor finds the agent of a model, which may be written as its address. A guest at a closed agent lacks a key.
func (a *openAI) modelFor(who caller, name string) (exchange.AgentProfile, error) {
	if name == "" {
		return exchange.AgentProfile{}, fault.InField("model", "is needed: the name of an agent")
	}

	local, domain, _ := strings.Cut(strings.TrimPrefix(name, "@"), "@")
	agent, known := a.agent(local)
	if !known || domain != "" && !strings.EqualFold(domain, a.options.Domain) {
		return exchange.AgentProfile{}, fault.Newf(fault.NotFound, "The model %q does not exist or you do not have access to it.", name)
	}

	err := a.access.admit(who, agent)
	if who.guest() && fault.Is(err, fault.Forbidden) {
		return agent, fault.New(fault.Unauthenticated, fault.Of(err).Public)
	}
	return agent, err
}

// OpenAIErrorBody is an error in OpenAI's form.
type OpenAIErrorBody struct {
	Error OpenAIErrorDetail `json:"error"`
}

// OpenAIErrorDetail is the inner object of an OpenAIErrorBody.
type OpenAIErrorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`

	Retryable bool `json:"retryable,omitempty"` // of a failure of the agent: the same request may be answered later

	// Documentation is where the code is explained, a path on this server; documented fills it in.
	Documentation string `json:"documentation,omitempty"`
}

// documented returns the error as it is sent.
func (d OpenAIErrorDetail) documented() OpenAIErrorBody {
	d.Documentation = reference.OfCode(d.Code)
	return OpenAIErrorBody{d}
}

type openAIError struct {
	status int
	detail OpenAIErrorDetail
}

// write answers with an error after which OpenAI's SDKs do not send the request again by themselves.
func (e *openAIError) write(w http.ResponseWriter) {
	w.Header().Set("X-Should-Retry", "false")
	httpserver.WriteJSON(w, e.status, e.detail.documented())
}

// openAICodes are OpenAI's words for our kinds of faults; every other keeps its own.
var openAICodes = map[fault.Kind]struct{ errorType, code string }{
	fault.Unauthenticated: {"invalid_request_error", "invalid_api_key"},
	fault.Forbidden:       {"invalid_request_error", "insufficient_permissions"},
	fault.NotFound:        {"invalid_request_error", "model_not_found"},
	fault.RateLimited:     {"requests", "rate_limit_exceeded"},
	fault.Unavailable:     {"server_error", "unavailable"},
	fault.Internal:        {"server_error", "internal"},
}

func writeOpenAIError(w http.ResponseWriter, err error) {
	known := fault.Of(err)
	detail := OpenAIErrorDetail{Message: known.Public, Type: "invalid_request_error", Code: string(known.Kind)}
	if words, is := openAICodes[known.Kind]; is {
		detail.Type, detail.Code = words.errorType, words.code
	}
	if known.Code != "" {
		detail.Code = known.Code
	}
	if known.Field != "" {
		detail.Param, detail.Message = &known.Field, known.Field+" "+known.Public
	}
	if known.Kind == fault.Conflict { // SDKs repeat it, and it stays one
		w.Header().Set("X-Should-Retry", "false")
	}

	httpserver.SetRetry(w.Header(), known)
	httpserver.WriteJSON(w, httpserver.Status(known.Kind), detail.documented())
}
