package llm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/clip"
	"inbox/normalized"
)

// Sizes of one assistant turn in bytes.
const (
	maxTextBytes      = 1<<20 - 256 // as much as one text part may have (message contract, section 1), with the line about the rest
	maxArgumentsBytes = 1 << 20     // of one call
)

// reply puts the deltas of one assistant turn together, as far as it has room for them.
type reply struct {
	text  strings.Builder
	calls []call
	usage Usage
	stop  string

	left   int // bytes of the text that have no room
	unmade int // tool calls over the limit
}

type call struct {
	id, name  string
	arguments bytes.Buffer // not a strings.Builder: the list of calls grows while their pieces come
	over      bool         // they are too long
}

// content returns the text, with a line about what is not in it.
func (r *reply) content() string {
	text := r.text.String()
	if r.left > 0 {
		text += "\n\n" + normalized.Left{Bytes: r.left}.String()
	}
	if r.unmade > 0 {
		text += fmt.Sprintf("\n\n(%d more tool calls were not made: there are at most %d at once.)", r.unmade, maxCalls)
	}
	return text
}

// add takes the next delta. Its errors say how the provider broke the order of deltas.
func (r *reply) add(delta Delta) error {
	switch delta.Kind {
	case DeltaText:
		kept := ""
		if r.left == 0 {
			kept = clip.Bytes(delta.Text, maxTextBytes-r.text.Len())
		}
		r.left += len(delta.Text) - len(kept)
		r.text.WriteString(kept)
	case DeltaToolCall:
		if delta.Index != len(r.calls)+r.unmade {
			return fmt.Errorf("tool call %d begins out of order", delta.Index)
		}
		if len(r.calls) >= maxCalls {
			r.unmade++
			return nil
		}
		r.calls = append(r.calls, call{id: callID(delta.ID), name: delta.Name})
	case DeltaArguments:
		if delta.Index < 0 || delta.Index >= len(r.calls)+r.unmade {
			return fmt.Errorf("arguments of tool call %d came before the call", delta.Index)
		}
		if delta.Index >= len(r.calls) {
			return nil
		}
		written := &r.calls[delta.Index]
		if written.over = written.over || written.arguments.Len()+len(delta.Text) > maxArgumentsBytes; !written.over {
			written.arguments.WriteString(delta.Text)
		}
	case DeltaUsage:
		r.usage = delta.Usage
	case DeltaStop:
		r.stop = delta.Stop
	}
	return nil
}

var goodID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// callID keeps an id that every API accepts; otherwise it makes one, which is never the same twice.
func callID(given string) string {
	if goodID.MatchString(given) {
		return given
	}
	random := make([]byte, 12)
	_, _ = rand.Read(random) // never fails
	return "call_" + hex.EncodeToString(random)
}

// parameters reads the arguments of a call. No arguments at all are an empty object.
func (c *call) parameters() (map[string]any, error) {
	if c.over {
		return nil, errors.New("the arguments are over 1 MiB")
	}
	text := strings.TrimSpace(c.arguments.String())
	if text == "" {
		return map[string]any{}, nil
	}

	given, err := value.Decode([]byte(text), value.Limits{Bytes: maxArgumentsBytes})
	if err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}

	object, is := given.(map[string]any)
	if !is {
		return nil, errors.New("the arguments are no JSON object")
	}
	return object, nil
}

// row is the call as the loop takes it. Arguments that cannot be read are told to the mediator, which refuses the call:
// an empty object would be another call than the one that the model meant.
func (c *call) row(tools tool.Declarations) map[string]any {
	row := map[string]any{"id": c.id, "name": called(tools, c.name)}
	parameters, err := c.parameters()
	if err != nil {
		row[unreadable] = err.Error()
		parameters = map[string]any{}
	}
	row["parameters"] = parameters
	return row
}

const unreadable = "unreadable_arguments"

// tokens is usage as the loop sums it.
func (u Usage) tokens() map[string]any {
	tokens := map[string]any{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"cache_read_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite,
	}
	if u.Cost > 0 {
		tokens["cost"] = u.Cost
	}
	return tokens
}

// jsonText is a value as the arguments of a call.
func jsonText(given any) json.RawMessage { return json.RawMessage(value.EncodeText(given)) }

const (
	sayRefusal = "The agent's model declined to answer this."
	sayTooLong = "The agent needed more steps than it may take and has no answer."
)

// finish returns what a run came to.
func (j *job) finish(ctx context.Context, result map[string]any) error {
	outcome := value.Assoc(result["run_outcome"])
	status := value.Text(outcome["status"])
	text := strings.TrimSpace(value.Text(result["final_content"]))
	switch status {
	case envelope.StatusApprovalRequired, envelope.StatusRuntimeToolPending:
		return j.wait(ctx, result, status)
	case envelope.StatusBudgetExceeded, envelope.StatusStalled:
		concluded, err := j.conclude(ctx, result)
		if err != nil {
			return err
		}
		text, result["final_content"] = concluded, concluded
	case envelope.StatusCompleted:
		if j.note.Complete { // in the middle of its work: what it said last is no answer
			concluded, err := j.conclude(ctx, result)
			if err != nil {
				return err
			}
			text, result["final_content"] = concluded, concluded
		}
	case envelope.StatusFailed:
		return unusable(errors.New(value.Text(value.Assoc(result["failure"])["message"])))
	}

	if err := j.deformed(text); err != nil && status != envelope.StatusInterrupted && status != envelope.StatusCancelled {
		return unusable(err)
	}

	response := normalized.Response{Metadata: j.metadata(status)}
	if text == "" || status == envelope.StatusInterrupted || status == envelope.StatusCancelled || status == envelope.StatusIncomplete {
		response.Status, response.Error = normalized.StatusFailed, j.failure(status)
		response.Parts = []normalized.Part{normalized.Text(response.Error.Message)}
		text = ""
	}

	if j.said != nil && text != "" {
		response.Left.Bytes = j.said.left // the text says so already
	}
	if j.stop == StopLength && text != "" {
		response.Parts = append(response.Parts, normalized.Text(normalized.Cut))
	}
	j.answer.close(response, text)
	return nil
}

// failure says to the sender why there is no answer.
func (j *job) failure(status string) *normalized.ResponseError {
	switch {
	case status == envelope.StatusInterrupted || status == envelope.StatusCancelled:
		return &normalized.ResponseError{Code: "run:" + status, Message: "The agent was stopped before it had an answer."}
	case status != envelope.StatusCompleted:
		return &normalized.ResponseError{Code: "run:" + status, Message: sayStopped(j.budget)}
	case j.stop == StopRefusal:
		return &normalized.ResponseError{Code: "model:refusal", Message: sayRefusal}
	}
	return &normalized.ResponseError{Code: "model:empty", Message: sayUnusable}
}

// conclude lets the model answer with what it has when a budget ran out or it went in circles.
func (j *job) conclude(ctx context.Context, result map[string]any) (string, error) {
	if spentOut(value.Text(result["budget"])) {
		return "", nil
	}

	transcript, err := envelope.NormalizeMany(result["messages"])
	if err != nil {
		return "", unusable(err)
	}

	transcript = append(transcript, envelope.UserText("(No more tools can be used. Answer now with what you have.)", nil))
	_, said, err := j.askFitting(ctx, transcript, "conclude", true)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(said.content()), nil
}

// metadata is what the operator's trace shows: what it took and what it cost.
func (j *job) metadata(status string) map[string]string {
	usage := j.note.Usage
	shown := map[string]string{"model": j.agent.options.Model, "model_calls": strconv.Itoa(j.note.ModelCalls)}
	if status != envelope.StatusCompleted {
		shown[normalized.MetadataOutcome] = status
	}
	if j.budget != "" {
		shown["budget"] = j.budget
	}
	if j.stop != "" {
		shown[normalized.MetadataStop] = firstRunes(j.stop, 100)
	}

	for _, name := range []string{"prompt_tokens", "completion_tokens", "total_tokens", "cache_read_tokens", "cache_write_tokens"} {
		if count, whole := value.Integer(usage[name]); whole {
			shown[name] = strconv.FormatInt(count, 10)
		}
	}

	if calls := len(j.answer.calls) + len(j.answer.left); calls > 0 {
		shown["tool_calls"] = strconv.Itoa(calls)
	}

	if cost := j.agent.options.Price.of(usage); cost > 0 {
		shown["cost"] = strconv.FormatFloat(cost, 'f', 6, 64)
		if currency := j.agent.options.Price.Currency; currency != "" {
			shown["currency"] = currency
		}
	}

	return shown
}
