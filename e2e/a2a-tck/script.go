package main

import (
	"context"
	"encoding/base64"
	"iter"
	"strings"
	"time"

	"inbox/agents"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// script is the agent of the conformance kit: it does what the prefix of the message id says (scenarios/*.feature of the
// kit). It knows nothing of A2A; everything goes through queue and store.
type script struct {
	open bool // messages without a known prefix leave their task open
}

// longWork is how long a task has to run for the kit's test of resubscription.
const longWork = 4 * time.Second

// steps are asked from top to bottom: a longer prefix stands before the shorter one.
var steps = []struct {
	prefix string
	answer func(context.Context) iter.Seq2[normalized.Delta, error]
}{
	{"tck-complete-task", says("Hello from TCK")},
	{"tck-artifact-text", says("Generated text content")},
	{"tck-artifact-file-url", whole(normalized.Part{
		Kind: normalized.PartFile, MIME: normalized.MIMEPlain, Name: "output.txt",
		BytesRef: &normalized.BytesRef{Kind: normalized.BytesURL, URL: "https://example.com/output.txt"},
	})},
	{"tck-artifact-file", whole(inline("output.txt", normalized.MIMEPlain, "Generated file content"))},
	{"tck-artifact-data", whole(data(`{"key": "value", "count": 42}`))},
	{"tck-message-response", talks("Direct message response")},
	{"tck-input-required", asks("What else do you need?")},
	{"tck-reject-task", rejects("rejected")},
	{"tck-stream-001", says("Stream hello from TCK")},
	{"tck-stream-003", says("Stream task lifecycle")},
	{"tck-stream-ordering-001", says("Ordered output")},
	{"tck-stream-artifact-text", says("Streamed text content")},
	{"tck-stream-artifact-file", whole(inline("output.txt", normalized.MIMEPlain, "Streamed file content"))},
	{"tck-stream-artifact-chunked", grows("chunk-1 ", "chunk-2")},
	{"test-resubscribe-message-id", works(longWork)},
}

// Handle answers by prefix. Everything else is done at once, or, for the kit of 0.3, stays open: its tests send without
// "blocking", which clients of 0.3 mean as blocking, and then continue or cancel the task.
func (s script) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	for _, step := range steps {
		if strings.HasPrefix(turn.Message.ID, step.prefix) {
			return step.answer(ctx)
		}
	}
	if s.open {
		return asks("What else?")(ctx)
	}
	return works(0)(ctx)
}

type answerer = func(context.Context) iter.Seq2[normalized.Delta, error]

func whole(parts ...normalized.Part) answerer {
	return func(context.Context) iter.Seq2[normalized.Delta, error] {
		return normalized.Whole(normalized.Response{Parts: parts})
	}
}

func says(text string) answerer { return whole(normalized.Text(text)) }

func talks(text string) answerer {
	return func(context.Context) iter.Seq2[normalized.Delta, error] {
		return normalized.Whole(normalized.Response{
			Parts: []normalized.Part{normalized.Text(text)}, Metadata: map[string]string{normalized.MetadataTalk: "true"},
		})
	}
}

func asks(text string) answerer {
	return func(context.Context) iter.Seq2[normalized.Delta, error] {
		return normalized.Whole(normalized.Response{Status: normalized.StatusInputRequired, Parts: []normalized.Part{normalized.Text(text)}})
	}
}

func rejects(text string) answerer {
	return whole(normalized.Part{Kind: normalized.PartPolicy, Policy: &policypart.Part{
		Kind: policypart.Forbidden, Title: "The agent does not do that.", Message: text,
	}})
}

func grows(pieces ...string) answerer {
	return func(context.Context) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			for _, piece := range pieces {
				if !yield(normalized.Delta{Kind: normalized.DeltaText, Text: piece}, nil) {
					return
				}
			}
		}
	}
}

func works(duration time.Duration) answerer {
	return func(ctx context.Context) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			select {
			case <-ctx.Done():
				yield(normalized.Delta{}, fault.RetryIn(0, "the work was interrupted", context.Cause(ctx)))
			case <-time.After(duration):
				yield(normalized.Delta{Kind: normalized.DeltaText, Text: "Done."}, nil)
			}
		}
	}
}

func data(content string) normalized.Part {
	part := normalized.Data()
	part.Size, part.BytesRef = int64(len(content)), normalized.Inline([]byte(content))
	return part
}

func inline(name, mediaType, content string) normalized.Part {
	return normalized.Part{
		Kind: normalized.PartFile, MIME: mediaType, Name: name, Size: int64(len(content)),
		BytesRef: &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString([]byte(content))},
	}
}
