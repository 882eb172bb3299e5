package chat

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"inbox/agents/chat"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const surfaceOpenAI = "openai"

// openAIRoutes speak the form of OpenAI's chat completions, so that programs that know it reach our agents: an agent is a
// model, a bearer token an API key. The conversation is what the client sends each time.
func (a *Adapter) openAIRoutes() []httpserver.Route {
	return []httpserver.Route{
		{Method: http.MethodPost, Pattern: "/v1/chat/completions", Handler: a.edge(surfaceOpenAI, a.serveCompletion)},
		{Method: http.MethodGet, Pattern: "/v1/models", Handler: a.edge(surfaceOpenAI, a.serveModels)},
		{Method: http.MethodGet, Pattern: "/v1/models/{model}", Handler: a.edge(surfaceOpenAI, a.serveModel)},
	}
}

// Model is an agent as a model.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// ModelList is what GET /v1/models answers.
type ModelList struct {
	Object string  `json:"object"` // "list"
	Data   []Model `json:"data"`
}

func (a *Adapter) model(agent exchange.AgentProfile) Model {
	return Model{agent.Name, "model", agent.CreatedAt.Unix(), a.options.Domain}
}

// serveModels lists the agents that the caller may write to.
func (a *Adapter) serveModels(w http.ResponseWriter, r *http.Request) error {
	who, err := a.identify(r)
	if err != nil {
		return err
	}
	list := ModelList{"list", []Model{}}
	for _, agent := range a.options.Directory.Agents() {
		if a.admit(who, agent) == nil {
			list.Data = append(list.Data, a.model(agent))
		}
	}
	httpserver.WriteJSON(w, http.StatusOK, list)
	return nil
}

func (a *Adapter) serveModel(w http.ResponseWriter, r *http.Request) error {
	who, err := a.identify(r)
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

// modelFor finds the agent of a model. A guest at a closed agent lacks a key.
func (a *Adapter) modelFor(who caller, name string) (exchange.AgentProfile, error) {
	agent, known := a.agent(name)
	if !known {
		return agent, fault.Newf(fault.NotFound, "The model %q does not exist.", name)
	}
	err := a.admit(who, agent)
	if who.guest() && fault.Is(err, fault.Forbidden) {
		return agent, fault.New(fault.Unauthenticated, fault.Of(err).Public)
	}
	return agent, err
}

// serveCompletion is POST /v1/chat/completions.
func (a *Adapter) serveCompletion(w http.ResponseWriter, r *http.Request) error {
	who, err := a.identify(r)
	if err != nil {
		return err
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	var request CompletionRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return fault.Wrap(fault.Malformed, "The body is not a request for a chat completion.", err)
	}
	agent, err := a.modelFor(who, request.Model)
	if err != nil {
		return err
	}
	input, err := request.input(agent.Name)
	if err != nil {
		return err
	}
	if key := strings.TrimSpace(r.Header.Get("Idempotency-Key")); key != "" {
		input.RunID = "key:" + key
	}
	found, err := a.accept(r.Context(), question{agent: agent, who: who, input: input, original: body}, "")
	if err != nil {
		return err
	}
	if request.Stream {
		return a.stream(w, r, found, &completionFrames{adapter: a, model: request.Model, usage: request.StreamOptions.IncludeUsage})
	}
	return a.answerCompletion(w, r, found, request.Model)
}

func (a *Adapter) answerCompletion(w http.ResponseWriter, r *http.Request, found run, model string) error {
	allowWait(w, a.options.WaitLimit)
	turn, err := a.await(r.Context(), found.turn.ID)
	if err != nil {
		return err
	}
	if failure := a.completionError(turn); failure != nil {
		failure.write(w)
		return nil
	}
	spent, err := a.spent(r.Context(), turn.ID)
	if err != nil {
		return err
	}
	usage := usageOf(spent)
	httpserver.WriteJSON(w, http.StatusOK, Completion{
		ID: completionID(turn), Object: "chat.completion", Created: turn.AcceptedAt.Unix(), Model: model, Usage: &usage,
		Choices: []CompletionChoice{{Message: &CompletionMessage{
			Role: "assistant", Content: a.reply(turn), ToolCalls: a.toolCalls(turn),
		}, FinishReason: finish()}},
	})
	return nil
}

// completionError is the error of a turn without an answer; nil where there is one. An SDK must not repeat the request by
// itself: what failed has been repeated here.
func (a *Adapter) completionError(turn exchange.TurnRecord) *openAIError {
	switch {
	case !a.settled(turn):
		return &openAIError{http.StatusGatewayTimeout, OpenAIErrorDetail{Message: "The agent is still working.", Type: "server_error", Code: "timeout"}}
	case turn.State == exchange.StateRefused:
		return &openAIError{http.StatusForbidden, OpenAIErrorDetail{Message: a.reply(turn), Type: "invalid_request_error", Code: "refused"}}
	case turn.State == exchange.StateFailed, turn.State == exchange.StateCancelled:
		return &openAIError{http.StatusInternalServerError, OpenAIErrorDetail{Message: a.reply(turn), Type: "server_error", Code: "agent_failed"}}
	}
	return nil
}

const (
	eventPage    = 500
	maxEventRead = 20 * eventPage
)

// spent reads what the models of a turn took.
func (a *Adapter) spent(ctx context.Context, turnID string) (steps []exchange.Event, err error) {
	for after := int64(0); after < maxEventRead; {
		events, err := a.options.Turns.Events(ctx, turnID, after, eventPage)
		if err != nil {
			return nil, err
		}
		for _, one := range events {
			if after = one.Seq; one.Kind == exchange.EventModelCalled {
				steps = append(steps, one)
			}
		}
		if len(events) < eventPage {
			break
		}
	}
	return steps, nil
}

func completionID(turn exchange.TurnRecord) string { return "chatcmpl-" + turn.ID }

func finish() *string {
	reason := "stop"
	return &reason
}

// completionFrames are the chunks of a streamed completion.
type completionFrames struct {
	adapter *Adapter
	model   string
	usage   bool
	sent    strings.Builder
}

func (f *completionFrames) chunk(found run, delta *CompletionMessage, finish *string) event {
	return event{data: Completion{
		ID: completionID(found.turn), Object: "chat.completion.chunk", Created: found.turn.AcceptedAt.Unix(), Model: f.model,
		Choices: []CompletionChoice{{Delta: delta, FinishReason: finish}},
	}}
}

func (f *completionFrames) begin(found run) []event {
	return []event{f.chunk(found, &CompletionMessage{Role: "assistant"}, nil)}
}

func (f *completionFrames) delta(found run, delta chat.Delta) []event {
	text, _ := delta["text"].(string)
	if delta["type"] == "content" {
		f.sent.WriteString(text)
		return []event{f.chunk(found, &CompletionMessage{Content: text}, nil)}
	}
	call := CompletionToolCall{Index: number(delta["index"])}
	call.Function.Arguments = text
	if delta["type"] == "tool_call" {
		call.ID, _ = delta["tool_call_id"].(string)
		call.Function.Name, _ = delta["tool_name"].(string)
		call.Type = "function"
	}
	return []event{f.chunk(found, &CompletionMessage{ToolCalls: []CompletionToolCall{call}}, nil)}
}

// end tells what is left of the answer. Words that left cannot be taken back: where the answer became another one, it
// stands after them.
func (f *completionFrames) end(found run, steps []exchange.Event) []event {
	if failure := f.adapter.completionError(found.turn); failure != nil {
		return []event{{data: OpenAIErrorBody{failure.detail}}}
	}
	var list []event
	reply, sent := f.adapter.reply(found.turn), strings.TrimSpace(f.sent.String())
	rest, grown := strings.CutPrefix(reply, sent)
	if !grown {
		rest = "\n\n" + reply
	}
	if rest != "" {
		list = append(list, f.chunk(found, &CompletionMessage{Content: rest}, nil))
	}
	list = append(list, f.chunk(found, &CompletionMessage{}, finish()))
	if f.usage {
		usage := usageOf(steps)
		last := f.chunk(found, nil, nil).data.(Completion)
		last.Choices, last.Usage = []CompletionChoice{}, &usage
		list = append(list, event{data: last})
	}
	return append(list, event{data: raw("[DONE]")})
}

func number(value any) *int {
	text, _ := value.(json.Number)
	index, err := text.Int64()
	if err != nil {
		return nil
	}
	at := int(index)
	return &at
}
