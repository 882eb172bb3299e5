package loop

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// ProviderAdapter dispatches one assistant turn to a model and returns what NormalizeProviderTurn reads (agent runtime
// contract, section 9).
type ProviderAdapter interface {
	ProviderTurn(ctx context.Context, request ProviderRequest) (any, error)
}

// ProviderRequest is one turn for a provider. Nothing in it may be changed.
type ProviderRequest struct {
	Messages         []envelope.Envelope
	Tools            tool.Declarations
	Model            map[string]any // Options.Model, with provider_id, model_id and temperature of the context
	Runtime          map[string]any // Options.Runtime, with runtime_id, runtime_context and request_kind of the context
	Context          map[string]any
	Budgets          map[string]any // {name: {current, limit}}
	RunID            string
	SessionID        string
	Metadata         map[string]any
	OnDelta          func(delta map[string]any) // nil = no streaming
	StructuredOutput *StructuredOutput          // nil = none asked for
}

// providerRunner makes a Runner of an adapter.
type providerRunner struct {
	run     *run
	adapter ProviderAdapter
	output  *StructuredOutput
}

// Turn implements Runner.
func (p *providerRunner) Turn(ctx context.Context, messages []envelope.Envelope, turn map[string]any) (any, error) {
	given, err := p.adapter.ProviderTurn(ctx, p.request(messages, turn))
	if err != nil {
		return nil, err
	}

	raw, is := value.Object(given)
	if !is {
		return nil, providerError("adapter", "must return an array")
	}

	result, err := NormalizeProviderTurn(raw)
	if err != nil {
		return nil, err
	}

	if message := value.Assoc(result["message"]); result["content"] == "" {
		result["content"] = value.Text(message["content"])
	}

	p.readOutput(result)
	if p.run.mediating {
		return result, nil // the loop adds content and calls to the transcript
	}

	return result, withAnswer(result, messages)
}

func (p *providerRunner) request(messages []envelope.Envelope, turn map[string]any) ProviderRequest {
	options := &p.run.options
	return ProviderRequest{
		Messages: messages, Tools: p.run.tools, Context: turn,
		Model:   withContext(options.Model, turn, "provider_id", "model_id", "temperature"),
		Runtime: withContext(options.Runtime, turn, "runtime_id", "runtime_context", "request_kind"),
		Budgets: p.run.budgets.limits(), RunID: options.RunID, SessionID: options.SessionID, Metadata: options.Metadata,
		OnDelta: options.OnDelta, StructuredOutput: p.output,
	}
}

func withContext(given, turn map[string]any, names ...string) map[string]any {
	merged := value.Filled(maps.Clone(given))
	for _, name := range names {
		value, offered := turn[name]
		if _, own := merged[name]; offered && !own {
			merged[name] = value
		}
	}
	return merged
}

// readOutput reads a structured output that the adapter left in the text.
func (p *providerRunner) readOutput(result map[string]any) {
	if p.output == nil || result["failure"] != nil || result["structured_output"] != nil {
		return
	}

	read := p.output.Read(value.Text(result["content"]))
	if diagnostics, has := read["provider_diagnostics"]; has {
		merged := maps.Clone(value.Assoc(result["provider_diagnostics"]))
		maps.Copy(merged, value.Assoc(diagnostics))
		read["provider_diagnostics"] = merged
	}
	maps.Copy(result, read)
}

// withAnswer makes a turn without tools a whole conversation result: the transcript and what the model said.
func withAnswer(result map[string]any, messages []envelope.Envelope) error {
	messages = slices.Clip(messages)
	if result["message"] != nil {
		message, err := envelope.Normalize(result["message"])
		if err != nil {
			return err //nolint:wrapcheck // its errors are the contract's
		}
		messages = append(messages, message)
	} else if content := value.Text(result["content"]); content != "" {
		messages = append(messages, envelope.AssistantText(content, nil))
	}

	added, err := envelopes(result["continuation_messages"])
	if err != nil {
		return err
	}

	events := []any{}
	for _, message := range added {
		events = append(events, event("continuation_message_added", map[string]any{"role": message.Role}))
	}

	result["messages"], result["events"] = append(messages, added...), events
	result["tool_execution_results"] = []any{}
	return nil
}

// NormalizeProviderTurn brings what a provider adapter gave for one assistant turn into form: {content, message,
// continuation_messages, tool_calls, usage, request_metadata, provider_diagnostics, failure?, structured_output?}.
// Unknown members are dropped. When tool_calls is absent or null, calls are read from the text. Errors have the code
// invalid_agent_provider_turn_result (agent runtime contract, section 9).
func NormalizeProviderTurn(raw map[string]any) (map[string]any, error) {
	turn := map[string]any{"content": value.Text(raw["content"]), "message": nil}
	for _, name := range []string{"usage", "request_metadata", "provider_diagnostics"} {
		object, err := optionalObject(raw, name)
		if err != nil {
			return nil, err
		}
		turn[name] = object
	}

	for _, step := range []func(turn, raw map[string]any) error{
		takeMessage, takeToolCalls, takeContinuation, takeFailure, takeStructuredOutput,
	} {
		if err := step(turn, raw); err != nil {
			return nil, err
		}
	}

	return turn, nil
}

func providerError(path, reason string) error { return invalid(codeProviderTurn, path, reason) }

// optionalObject returns an object member; null and absence are the empty object, and so is a list, which has no names.
func optionalObject(raw map[string]any, path string) (map[string]any, error) {
	given := raw[path]
	if given == nil {
		return map[string]any{}, nil
	}
	if !value.Container(given) {
		return nil, providerError(path, "must be an array")
	}
	return value.Assoc(given), nil
}

func takeMessage(turn, raw map[string]any) error {
	if raw["message"] == nil {
		return nil
	}
	if !value.Container(raw["message"]) {
		return providerError("message", "must be an array when present")
	}
	message, err := envelope.Normalize(value.Assoc(raw["message"]))
	turn["message"] = message.Value()
	return err
}

func takeToolCalls(turn, raw map[string]any) (err error) {
	given := raw["tool_calls"]
	switch {
	case given == nil:
		turn["tool_calls"] = ExtractToolCalls(textsOf(raw)...)
	case !value.Container(given):
		err = providerError("tool_calls", "must be an array when present")
	default:
		turn["tool_calls"], err = normalizeToolCalls(given)
	}
	return err
}

func textsOf(raw map[string]any) []string {
	var texts []string
	values := []any{raw["content"], raw["text"], raw["output_text"], value.Assoc(raw["message"])["content"]}
	for _, value := range values {
		if text, is := value.(string); is {
			texts = append(texts, text)
		}
	}
	return texts
}

func normalizeToolCalls(given any) ([]any, error) {
	calls := []any{}
	for _, row := range entries(given) {
		path := "tool_calls[" + row.key + "]"
		raw, is := row.value.(map[string]any)
		if !is {
			if !value.Container(row.value) {
				return nil, providerError(path, "must be an array")
			}
			raw = map[string]any{}
		}

		call, err := normalizeToolCall(raw, path)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}

	return calls, nil
}

func normalizeToolCall(raw map[string]any, path string) (map[string]any, error) {
	name, _ := first(raw["name"], raw["tool_name"]).(string)
	if name == "" {
		return nil, providerError(path+".name", "must be a non-empty string")
	}

	parameters := raw["parameters"]
	if parameters != nil && !value.Container(parameters) {
		return nil, providerError(path+".parameters", "must be an array when present")
	}

	call := map[string]any{"name": name, "parameters": value.Assoc(parameters)}
	if id := value.Text(raw["id"]); id != "" {
		call["id"] = id
	}
	if value.Container(raw["metadata"]) {
		call["metadata"] = value.Assoc(raw["metadata"])
	}

	return call, nil
}

func takeContinuation(turn, raw map[string]any) error {
	given := raw["continuation_messages"]
	turn["continuation_messages"] = []any{}

	if given == nil {
		return nil
	}
	if !value.Container(given) {
		return providerError("continuation_messages", "must be an array when present")
	}

	messages, err := envelopes(given)
	turn["continuation_messages"] = envelope.Values(messages)
	return err
}

func takeFailure(turn, raw map[string]any) error {
	if raw["failure"] == nil {
		return nil
	}
	if !value.Container(raw["failure"]) {
		return providerError("failure", "must be an array when present")
	}

	failure := value.Assoc(raw["failure"])
	for _, name := range []string{"type", "message"} {
		if value.Text(failure[name]) == "" {
			return providerError("failure."+name, "must be a non-empty string")
		}
	}

	turn["failure"] = failure
	return nil
}

func takeStructuredOutput(turn, raw map[string]any) error {
	item, present := raw["structured_output"]
	if !present {
		return nil
	}

	given := value.Assoc(item)
	parsed, has := given["parsed"]
	if !has {
		return providerError("structured_output", "must be an array with a parsed key")
	}

	output := map[string]any{"parsed": parsed}
	if diagnostics := given["diagnostics"]; diagnostics != nil {
		if !value.Container(diagnostics) {
			return providerError("structured_output.diagnostics", "must be an array")
		}
		output["diagnostics"] = value.Assoc(diagnostics)
	}

	turn["structured_output"] = output
	return nil
}

// entry is one member of a list (key = index) or of an object (by name).
type entry struct {
	key   string
	index int // -1 for members of an object
	value any
}

func entries(given any) []entry {
	if list, is := value.List(given); is {
		rows := make([]entry, len(list))
		for i, item := range list {
			rows[i] = entry{key: fmt.Sprint(i), index: i, value: item}
		}
		return rows
	}

	object := value.Assoc(given)
	rows := make([]entry, 0, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		rows = append(rows, entry{key: key, index: -1, value: object[key]})
	}
	return rows
}
