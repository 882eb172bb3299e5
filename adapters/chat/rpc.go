package chat

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// rpcAPI is JSON-RPC chat (agent runtime contract, section 6.5).
type rpcAPI struct {
	*site
	access   *access
	messages *messages
	runs     *runs
	tools    *clientTools
	renderer *renderer
}

// serveRPC is POST /v1/agent/{agent}: JSON-RPC 2.0 (agent runtime contract, section 6.5). Who may not write gets an HTTP
// status before the request is looked at; everything after that is 200 with a frame.
func (a *rpcAPI) serveRPC(w http.ResponseWriter, r *http.Request) error {
	name := httpserver.Param(r, "agent")
	agent, known := a.agent(name)
	who, err := a.access.identify(r)
	if err != nil {
		return err
	}

	switch {
	case known:
		if err := a.access.admit(who, agent); err != nil {
			return err
		}
	case who.signed != nil: // it is made out to no agent here
		return badToken()
	}

	body, err := a.access.readBody(r, who)
	if err != nil {
		return err
	}

	request, refused := contract.ReadRequest(name, body)
	switch {
	case refused != nil:
		writeFrame(w, refused.Frame())
	case !known:
		writeFrame(w, contract.ErrorFrame(request.ID, contract.InternalError, `Agent "`+request.Input.Agent+`" was not found.`))
	default:
		return a.answerRPC(w, r, request, question{agent: agent, who: who, input: request.Input, messageID: messageIDOf(body), original: body})
	}

	return nil
}

// messageIDOf reads params.message.messageId.
func messageIDOf(body []byte) string {
	given, err := value.Decode(body, value.Limits{Bytes: contract.MaxInputBytes})
	if err != nil {
		return ""
	}
	return value.Scalar(value.Assoc(value.Assoc(value.Assoc(given)["params"])["message"])["messageId"])
}

func (a *rpcAPI) answerRPC(w http.ResponseWriter, r *http.Request, request contract.Request, q question) error {
	lastEvent := ""
	if request.Stream {
		lastEvent = r.Header.Get("Last-Event-ID")
	}

	found, err := a.messages.accept(r.Context(), q, lastEvent)
	switch {
	case fault.Is(err, fault.Forbidden):
		return err
	case err != nil:
		a.refuseRPC(r.Context(), w, request.ID, err)
		return nil
	case request.Stream:
		return a.runs.stream(w, r, found, &rpcFrames{api: a, id: request.ID, silent: request.Input.TokenStreaming != nil && !*request.Input.TokenStreaming})
	}

	allowWait(w, a.options.WaitLimit)
	found, err = a.runs.awaitRun(r.Context(), found)
	if err != nil {
		if r.Context().Err() == nil {
			a.refuseRPC(r.Context(), w, request.ID, err)
		}
		return nil
	}

	writeFrame(w, a.lastFrame(request.ID, found))
	return nil
}

// lastFrame is the one with the Task, or an error that there is none yet.
func (a *rpcAPI) lastFrame(id any, found run) contract.Frame {
	if !a.tools.settled(found.turn) {
		return contract.ErrorFrame(id, contract.InternalError, sentenceWorking)
	}

	task, more := contract.TaskOf(a.renderer.output(found)), map[string]any{}
	if status := statusOf(found.turn); status != statusCompleted { // the two states of the contract do not say why
		more["status"], more["state"] = status, found.turn.State
		if len(found.calls) > 0 {
			more["toolCalls"] = found.calls
		}
	}

	if failure := failureOf(found.turn); failure != nil {
		more["error"] = failure
	}
	if stop := stopOf(found.turn); stop != "" {
		more["stop"] = stop
	}
	if shown := toolsOf(found.turn); len(shown) > 0 {
		more["tools"] = shown
	}
	if citations := citationsOf(found.turn); len(citations) > 0 {
		more["citations"] = citations
	}
	if files := a.renderer.filesOf(found.turn); len(files) > 0 {
		more["files"] = files
	}
	if len(more) > 0 {
		task.Metadata = map[string]any{"inbox": more}
	}
	return contract.ResultFrame(id, task)
}

// refuseRPC answers a request that the engine did not take.
func (a *rpcAPI) refuseRPC(ctx context.Context, w http.ResponseWriter, id any, err error) {
	number, known := contract.InternalError, fault.Of(err)
	switch known.Kind {
	case fault.Malformed, fault.TooLarge:
		number = contract.InvalidParams
	case fault.Internal:
		a.options.Logger.ErrorContext(ctx, "a chat request failed", "error", err)
	}
	writeFrame(w, contract.ErrorFrame(id, number, rpcText(err, known)))
}

func rpcText(err error, known *fault.Fault) string {
	if refused, is := errors.AsType[*contract.Error](err); is {
		return refused.Text
	}
	if text, is := toolRefusal(err); is {
		return text
	}

	text := known.Public
	if known.Field != "" {
		text = known.Field + " " + text
	}
	if text == "" {
		return sentenceFailed
	}

	return strings.ToUpper(text[:1]) + text[1:] + "."
}

func writeFrame(w http.ResponseWriter, frame contract.Frame) {
	httpserver.WriteJSON(w, http.StatusOK, frame)
}

// rpcFrames are the frames of JSON-RPC chat: message/delta notifications, then one response.
type rpcFrames struct {
	api    *rpcAPI
	id     any  // of the request
	silent bool // the client wants the answer whole
}

func (rpcFrames) begin(run) []event { return nil }

func (f *rpcFrames) delta(found run, delta contract.Delta) []event {
	if f.silent {
		return nil
	}
	return []event{{data: contract.DeltaFrame(found.route.Run, delta)}}
}

func (f *rpcFrames) end(found run, _ []exchange.Event) []event {
	var list []event
	for _, delta := range callDeltas(found.calls) {
		list = append(list, f.delta(found, delta)...)
	}
	return append(list, event{data: f.api.lastFrame(f.id, found)})
}

// methodResume is the notification that ends a stream before its run.
const methodResume = "message/resume"

// broken tells where to go on: the same request with Last-Event-ID, here or at another node.
func (f *rpcFrames) broken(found run, last string) []event {
	return []event{{data: contract.NewNotification(methodResume, ChatResume{
		Session: found.route.Session, RunID: found.route.Run, EventID: last, Reason: streamCut,
	})}}
}
