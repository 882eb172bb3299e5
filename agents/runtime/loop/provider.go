package loop

import (
	"context"
	"maps"
	"slices"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// ProviderAdapter dispatches one assistant turn to a model and gives what NormalizeProviderTurn reads (agent runtime
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
