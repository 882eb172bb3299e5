package llm

import (
	"context"
	"slices"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// Turn implements loop.Runner: one call of the model.
func (j *job) Turn(ctx context.Context, transcript []envelope.Envelope, turn map[string]any) (any, error) {
	if err := j.keep(ctx, transcript); err != nil {
		return nil, j.fail(err)
	}
	last := value.Equal(turn["turn"], j.turnsLeft())
	shorter, said, err := j.askFitting(ctx, transcript, "", last)
	if err != nil {
		return nil, j.fail(err)
	}
	j.said = said
	j.note.Turns++
	result := map[string]any{"usage": said.usage.tokens(), "metadata": map[string]any{"stop": said.stop}}
	if shorter != nil {
		transcript, result["messages"] = shorter, shorter
	}
	if j.tools.Len() == 0 {
		result["messages"] = append(slices.Clip(transcript), envelope.AssistantText(said.text.String(), nil))
		return result, nil
	}
	distinct(said.calls, transcript)
	result["content"], result["tool_calls"] = said.text.String(), []any{}
	for i := range said.calls {
		result["tool_calls"] = append(result["tool_calls"].([]any), said.calls[i].row(j.names))
	}
	return result, nil
}

// fail remembers the failure as it was: the loop keeps its text only.
func (j *job) fail(err error) error {
	if j.problem == nil {
		j.problem = err
	}
	return err
}

// ask streams one assistant turn. With answer the model must not call tools any more.
func (j *job) ask(ctx context.Context, transcript []envelope.Envelope, purpose string, answer bool) (*reply, error) {
	options := &j.agent.options
	conversation := &conversation{names: j.names, pictures: j.pictures}
	conversation.write(transcript)
	said, err := j.stream(ctx, Request{
		Model: options.Model, System: j.system, Messages: conversation.finish(), Tools: j.names.tools(), NoTools: answer,
		MaxTokens: options.MaxTokens, Temperature: options.Temperature, Whole: options.Whole,
	}, purpose, j.answer.text)
	if err != nil {
		return nil, err
	}
	j.answer.end()
	j.stop = said.stop
	return said, nil
}

// stream makes one call of the model and counts it.
func (j *job) stream(ctx context.Context, request Request, purpose string, text func(string)) (said *reply, err error) {
	said = &reply{}
	started := time.Now()
	defer func() {
		j.note.add(said.usage.tokens())
		j.modelEnded(started, request.Model, purpose, said, err)
		observeTokens(said.usage)
	}()
	for delta, err := range j.agent.options.Provider.Stream(ctx, request) {
		if err == nil {
			if broken := said.add(delta); broken != nil {
				err = unusable(broken)
			}
		}
		if err != nil {
			return said, err
		}
		if delta.Kind == DeltaText && text != nil {
			text(delta.Text)
		}
	}
	return said, nil
}
