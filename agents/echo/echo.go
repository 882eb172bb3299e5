// Package echo is the agent that sends a message back. It proves that an address works on all three networks, and it
// is the smallest complete example of an agent. It is deterministic, keeps nothing and asks no one.
package echo

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"inbox/agents"
	"inbox/normalized"
)

// Agent answers every message with its own text, markdown kept, and names what was attached. A message without
// anything to say back gets one sentence about who answers here. The zero value is ready and safe for concurrent use.
type Agent struct{}

// New makes an echo agent.
func New() Agent { return Agent{} }

// Handle streams the text back in small deltas and ends with the status that carries the ids. Its only error is the
// end of ctx.
func (Agent) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		for _, delta := range deltas(turn.Message) {
			if ctx.Err() != nil {
				yield(normalized.Delta{}, fmt.Errorf("echo: %w", context.Cause(ctx)))
				return
			}
			if !yield(delta, nil) {
				return
			}
		}
	}
}

func deltas(message normalized.Message) []normalized.Delta {
	var steps []normalized.Delta
	for _, part := range answer(message) {
		whole := part.Content
		part.Content = ""
		steps = append(steps, normalized.Delta{Kind: normalized.DeltaPartBegin, Part: &part})
		for _, piece := range pieces(whole) {
			steps = append(steps, normalized.Delta{Kind: normalized.DeltaText, Text: piece})
		}
		steps = append(steps, normalized.Delta{Kind: normalized.DeltaPartEnd})
	}

	return append(steps, normalized.Delta{
		Kind:     normalized.DeltaStatus,
		Response: &normalized.Response{InReplyTo: message.ID, ThreadID: message.ThreadID},
	})
}

// answer returns the text parts of the reply, at least one.
func answer(message normalized.Message) []normalized.Part {
	var parts []normalized.Part
	var attached []string
	for _, part := range message.Parts {
		if part.Kind == normalized.PartText && strings.TrimSpace(part.Content) != "" {
			parts = append(parts, normalized.Part{Kind: normalized.PartText, MIME: part.MIME, Content: part.Content})
		}
		if line := mention(part); line != "" {
			attached = append(attached, "- "+line)
		}
	}

	if len(attached) > 0 {
		parts = append(parts, normalized.Text("You also sent:\n"+strings.Join(attached, "\n")))
	}
	if len(parts) == 0 {
		parts = []normalized.Part{normalized.Text(introduction(message.Recipient))}
	}

	return parts
}

func introduction(recipient string) string {
	return "Hello, this is " + recipient + ". Write me something and I will send it back."
}
