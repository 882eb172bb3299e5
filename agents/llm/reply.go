package llm

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"inbox/agents/runtime/value"
)

// Sizes of one assistant turn in bytes.
const (
	maxTextBytes      = 1 << 20 // as much as one text part may have (message contract, section 1)
	maxArgumentsBytes = 1 << 20 // of one call
)

// reply puts the deltas of one assistant turn together.
type reply struct {
	text  strings.Builder
	calls []call
	usage Usage
	stop  string
}

type call struct {
	id, name  string
	arguments strings.Builder
}

// add takes the next delta. Its errors say which limit the model broke.
func (r *reply) add(delta Delta) error {
	switch delta.Kind {
	case DeltaText:
		if r.text.Len()+len(delta.Text) > maxTextBytes {
			return errors.New("the model's answer is over 1 MiB")
		}
		r.text.WriteString(delta.Text)
	case DeltaToolCall:
		if delta.Index != len(r.calls) || len(r.calls) >= maxCalls {
			return fmt.Errorf("tool call %d begins out of order or over the limit of %d", delta.Index, maxCalls)
		}
		r.calls = append(r.calls, call{id: callID(delta.ID), name: delta.Name})
	case DeltaArguments:
		if delta.Index < 0 || delta.Index >= len(r.calls) {
			return fmt.Errorf("arguments of tool call %d came before the call", delta.Index)
		}
		written := &r.calls[delta.Index].arguments
		if written.Len()+len(delta.Text) > maxArgumentsBytes {
			return errors.New("the arguments of a tool call are over 1 MiB")
		}
		written.WriteString(delta.Text)
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
func (c *call) row(names toolNames) map[string]any {
	row := map[string]any{"id": c.id, "name": names.declared(c.name)}
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
