package llm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
)

// AskTool is the name of the tool with which a model asks other agents.
const AskTool = "ask_agent"

// maxQuestion bounds the text of one question in bytes.
const maxQuestion = 64 << 10

// Asking offers AskTool for some agents, by their addresses (@name@domain). Its calls park the run: the engine asks
// (normalized.Response.Dispatch), and the run goes on with the answers. At the end of a chain of agents nothing is offered.
// Faults are fault.Malformed.
func Asking(addresses []string) (Tools, error) {
	offer := asking{}
	for _, text := range addresses {
		address, err := identity.ParseAddress(text)
		if err != nil || !strings.HasPrefix(text, "@") {
			return nil, fault.InField("agents", "must be addresses such as @name@domain")
		}
		offer.agents = append(offer.agents, address.String())
	}
	return offer, nil
}

type asking struct{ agents []string }

// Declarations returns the tool while there is someone to ask. A run that keeps no note could not go on with the answers.
func (a asking) Declarations(_ context.Context, turn agents.Turn) ([]tool.Entry, error) {
	others := a.others(turn)
	if len(others) == 0 || turn.Memory == nil || !mayGoOn(turn.Message.RecipientCapabilities.AgentChain) {
		return nil, nil
	}
	return []tool.Entry{{Name: AskTool, Value: map[string]any{
		"name": AskTool, "executor": tool.ExecutorHost, "scope": tool.ScopeRun, "category": "agents", "untrusted_text": true,
		"description": "Asks another agent and waits for its answer. It knows nothing of this conversation: the message must say everything that it needs. Ask several agents at once by several calls.",
		"parameters": map[string]any{
			"type": "object", "required": []any{"agent", "message"}, "additionalProperties": false,
			"properties": map[string]any{
				"agent":   map[string]any{"type": "string", "enum": others, "description": "whom to ask"},
				"message": map[string]any{"type": "string", "description": "the question, in plain words"},
			},
		},
	}}}, nil
}

// others leaves the agent itself out.
func (a asking) others(turn agents.Turn) []any {
	others := make([]any, 0, len(a.agents))
	for _, address := range a.agents {
		if !strings.EqualFold(address, turn.Message.Recipient) {
			others = append(others, address)
		}
	}
	return others
}

func mayGoOn(chain *normalized.AgentChain) bool {
	return chain == nil || !chain.IsFinal && chain.Hop < chain.MaxHops
}

// Execute takes a question. It is asked when the run is parked.
func (a asking) Execute(_ context.Context, call tool.Call) (map[string]any, error) {
	if _, err := a.question(call.Parameters); err != nil {
		return nil, err
	}
	return map[string]any{"success": false, "status": tool.StatusPending, "runtime_tool_request": map[string]any{"parameters": call.Parameters}}, nil
}

// question reads the arguments. Its errors are for the model.
func (a asking) question(parameters map[string]any) (inquiry, error) {
	asked := inquiry{To: value.Text(parameters["agent"]), Text: strings.TrimSpace(value.Text(parameters["message"]))}
	at := slices.IndexFunc(a.agents, func(address string) bool { return strings.EqualFold(address, asked.To) })
	switch {
	case at < 0:
		return asked, fmt.Errorf("%s is none of the agents that you may ask", quote(asked.To))
	case asked.Text == "":
		return asked, fmt.Errorf("the message to %s is empty", asked.To)
	case len(asked.Text) > maxQuestion:
		return asked, fmt.Errorf("the message to %s is over %d KiB", asked.To, maxQuestion>>10)
	}

	asked.To = a.agents[at]
	return asked, nil
}

// inquiry is one question to another agent, under the call that waits for its answer.
type inquiry struct {
	CallID string
	To     string
	Text   string
}

// WaitsForAgents is the Status of a Waiting whose answers other agents give.
const WaitsForAgents = exchange.WaitingDispatch

// asks returns the source of a tool when it is AskTool.
func (j *job) asks(name string) (asking, bool) {
	offer, is := j.executors[j.tools.Resolve(name)].(asking)
	return offer, is
}

// usedUp refuses a question that the engine would not ask any more, so that the model answers with what it has.
func (j *job) usedUp(call tool.Call) map[string]any {
	if _, is := j.asks(call.Name); !is || j.note.Asked < agents.MaxQuestions && j.note.Rounds < agents.MaxQuestionRounds {
		return nil
	}
	return map[string]any{
		"success": false, "error_type": "questions_used_up",
		"error": "No more questions can be asked for this message. Answer with what you have.",
	}
}

// gather makes a parked question wait for the answers, together with the questions of the same turn of the model that
// follow it, which the loop did not reach. It returns their calls for the transcript.
func (j *job) gather(ctx context.Context, transcript []envelope.Envelope, waiting *Waiting, offer asking) []envelope.Envelope {
	first, err := offer.question(value.Assoc(waiting.Request["parameters"]))
	if err != nil { // the executor has checked it
		return nil
	}

	first.CallID = waiting.CallID
	questions, added := []inquiry{first}, []envelope.Envelope(nil)
	room := min(normalized.MaxDispatches, agents.MaxQuestions-j.note.Asked)
	following := j.following(waiting.CallID)
	for i := range following {
		call := &following[i]
		parameters, err := call.parameters()
		more, is := j.asks(call.name)
		if err != nil || !is || len(questions) >= room {
			break
		}

		next, err := more.question(parameters)
		declaration, has := j.tools.Get(AskTool)
		if err != nil || !has || j.action(declaration) != tool.ActionDirect || !j.lets(ctx, transcript, call, declaration, parameters) {
			break
		}

		next.CallID = call.id
		questions = append(questions, next)
		shown := tool.RedactParameters(parameters, nil)
		j.toolBegins(map[string]any{"tool_call_id": call.id, "parameters": shown})
		j.answer.begin(call.id, AskTool, shown)
		added = append(added, envelope.NewToolCall("", waiting.ToolName, shown, turnOf(transcript, waiting.CallID), map[string]any{"tool_call_id": call.id}))
	}

	j.note.Asked, j.note.Rounds = j.note.Asked+len(questions), j.note.Rounds+1
	waiting.Status = WaitsForAgents
	waiting.Request = map[string]any{"questions": values(questions), "answers_before": len(j.turn.Answers)}
	return added
}

// following returns the calls behind a call in the last turn of the model.
func (j *job) following(id string) []call {
	if j.said == nil {
		return nil
	}
	at := slices.IndexFunc(j.said.calls, func(one call) bool { return one.id == id })
	if at < 0 {
		return nil
	}
	return j.said.calls[at+1:]
}

// turnOf returns the number of the model's turn that made a call.
func turnOf(transcript []envelope.Envelope, id string) int64 {
	for i := range transcript {
		if message := &transcript[i]; message.Type == envelope.TypeToolCall && message.ToolCallID() == id {
			number, _ := value.Integer(message.Payload["turn"])
			return number
		}
	}
	return 0
}

func values(questions []inquiry) []any {
	list := make([]any, len(questions))
	for i, asked := range questions {
		list[i] = map[string]any{"tool_call_id": asked.CallID, "agent": asked.To, "message": asked.Text}
	}
	return list
}

func questionsOf(waiting *Waiting) []inquiry {
	list, _ := value.List(waiting.Request["questions"])
	questions := make([]inquiry, len(list))
	for i, given := range list {
		object := value.Assoc(given)
		questions[i] = inquiry{value.Text(object["tool_call_id"]), value.Text(object["agent"]), value.Text(object["message"])}
	}
	return questions
}

// dispatch answers with the questions. Nothing else of the response is sent.
func (j *job) dispatch(waiting *Waiting) error {
	response := normalized.Response{Metadata: j.metadata(waiting.Status)}
	for _, asked := range questionsOf(waiting) {
		response.Dispatch = append(response.Dispatch, normalized.Dispatch{To: asked.To, Parts: []normalized.Part{normalized.Text(asked.Text)}})
	}
	j.answer.end()
	j.answer.emit(normalized.Delta{Kind: normalized.DeltaResponse, Response: &response})
	return nil
}

// answered puts what the other agents said into the transcript; waits says that they have not been asked yet, because the
// process died before the questions were stored.
func (j *job) answered(ctx context.Context, waiting *Waiting) (waits bool, err error) {
	before, _ := value.Integer(waiting.Request["answers_before"])
	questions := questionsOf(waiting)
	if int(before)+len(questions) > len(j.turn.Answers) {
		return true, nil
	}

	for i, asked := range questions {
		j.toolBegins(map[string]any{"tool_call_id": asked.CallID, "parameters": map[string]any{"agent": "", "message": ""}})
		j.result(asked.CallID, waiting.ToolName, resultOf(asked.To, &j.turn.Answers[int(before)+i].Response))
	}

	j.note.Waiting = nil
	return false, j.save(ctx)
}

// resultOf is an answer of another agent as the result of a tool: data, and never a success when it is a demand.
func resultOf(from string, answer *normalized.Response) map[string]any {
	failed := func(kind, format string, values ...any) map[string]any {
		return map[string]any{"success": false, "error": fmt.Sprintf(format, values...), "error_type": kind}
	}

	text := strings.TrimSpace(markup.PlainText(spoken(answer.Parts)))
	switch policy := answer.Policy(); {
	case answer.Silent:
		return failed("no_answer", "%s did not answer.", from)
	case policy != nil:
		return failed("demand", "%s asks for something first: %s", from, policy.Message)
	case answer.Error != nil:
		return failed(answer.Error.Code, "%s", answer.Error.Message)
	case answer.Outcome() == normalized.StatusFailed:
		return failed("failed", "%s could not help: %s", from, text)
	}

	result := map[string]any{"from": from, "answer": text}
	if stopped := answer.Stopped(); stopped != "" {
		result["incomplete"] = stopped
	} else if answer.Outcome() == normalized.StatusInputRequired {
		result["asks_back"] = true
	}

	return map[string]any{"success": true, "result": result}
}

// spoken leaves out what another agent did: its tool calls are not its answer.
func spoken(parts []normalized.Part) []normalized.Part {
	return slices.DeleteFunc(slices.Clone(parts), func(part normalized.Part) bool {
		return part.Kind == normalized.PartToolCall || part.Kind == normalized.PartPolicy
	})
}
