package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
	"inbox/policypart"
)

// CodeRefused is the code of a response of which the other agent did nothing.
const CodeRefused = "dispatch:refused"

const (
	stateKey       = "dev.mentionable.state" // of a presented demand: a bearer secret
	sentenceTooBig = "The answer is too large to be passed on."
)

// outcome waits for the end of the task and reads its answer.
func (c *Caller) outcome(ctx context.Context, w *wire, to identity.Address, result a2a.SendMessageResult) (normalized.Response, error) {
	task, isTask := result.(*a2a.Task)
	if !isTask {
		message, _ := result.(*a2a.Message)
		if message == nil {
			return normalized.Response{}, fault.GiveUp("the other agent answers in an unknown form", nil)
		}
		return c.completed(ctx, message.Parts)
	}
	task, err := w.finish(ctx, task)
	if err != nil {
		return w.refusal(to, err)
	}
	switch task.Status.State {
	case a2a.TaskStateCompleted:
		return c.completed(ctx, results(task))
	case a2a.TaskStateInputRequired, a2a.TaskStateAuthRequired:
		return c.demanded(ctx, task)
	}
	return refused(to, textOf(task.Status.Message)), nil
}

// finish polls a task that works.
func (w *wire) finish(ctx context.Context, task *a2a.Task) (*a2a.Task, error) {
	for pause := firstPoll; !task.Status.State.Terminal() && !interrupted(task.Status.State); pause = min(2*pause, maxPoll) {
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
		polled, err := w.get(ctx, task.ID)
		switch {
		case err == nil && polled.ID == task.ID:
			task = polled
		case err == nil:
			return nil, fault.GiveUp("the other agent answers with another task", nil)
		case w.passing(err): // the task goes on there; only ctx ends the wait
		default:
			return nil, err
		}
	}
	return task, nil
}

// passing reports whether the failure of a poll may be over at the next one.
func (w *wire) passing(err error) bool {
	return w.status == http.StatusTooManyRequests || w.status >= http.StatusInternalServerError ||
		w.status == 0 && !errors.Is(err, safehttp.ErrRefused) && !errors.Is(err, safehttp.ErrTooLarge)
}

// results are the parts of all artifacts, or what was said where there are none.
func results(task *a2a.Task) (parts a2a.ContentParts) {
	for _, artifact := range task.Artifacts {
		if artifact != nil {
			parts = append(parts, artifact.Parts...)
		}
	}
	if len(parts) == 0 && task.Status.Message != nil {
		return task.Status.Message.Parts
	}
	return parts
}

// completed is an answer; one without content is a deliberate silence.
func (c *Caller) completed(ctx context.Context, parts a2a.ContentParts) (normalized.Response, error) {
	read, err := c.readParts(ctx, parts)
	switch {
	case err != nil:
		return normalized.Response{}, err
	case len(read) == 0:
		return normalized.Response{Silent: true, Status: normalized.StatusCompleted}, nil
	}
	return c.bounded(normalized.Response{Parts: read, Status: normalized.StatusCompleted}), nil
}

// readParts turns foreign parts into ours, by the rules for messages.
func (c *Caller) readParts(ctx context.Context, parts a2a.ContentParts) ([]normalized.Part, error) {
	if c.blobs == nil {
		parts = withoutLarge(parts)
	}
	read, err := c.normalizeParts(ctx, parts)
	if _, malformed := errors.AsType[*problem](err); malformed {
		return nil, fault.GiveUp("the other agent answers in an unknown form", err)
	}
	if err != nil {
		return nil, fault.RetryIn(0, "a file of the answer cannot be kept", err)
	}
	response := normalized.Response{Parts: read}
	response.Clean()
	return response.Parts, nil
}

// withoutLarge leaves out what would need the blob store.
func withoutLarge(parts a2a.ContentParts) (list a2a.ContentParts) {
	for _, part := range parts {
		if part == nil || len(part.Raw()) <= normalized.MaxInlineBytes {
			list = append(list, part)
		}
	}
	return list
}

// bounded replaces an answer that cannot be kept with the turn that asked for it (message contract, section 5).
func (c *Caller) bounded(response normalized.Response) normalized.Response {
	limits := normalized.DefaultLimits()
	limits.AllowHTTP = c.options.AllowHTTP
	for _, broken := range normalized.Violations(normalized.Message{ReceivedTrace: &response}, limits) {
		switch {
		case !strings.HasPrefix(broken.Field, "received_trace"): // the message around it is of no interest
		case broken.Kind == fault.TooLarge:
			return failed("dispatch:too_large", sentenceTooBig)
		default:
			return failed("dispatch:invalid", "The answer breaks the rules and cannot be passed on.")
		}
	}
	return response
}

func failed(code, text string) normalized.Response {
	return normalized.Response{
		Status: normalized.StatusFailed, Parts: []normalized.Part{normalized.Text(text)},
		Error: &normalized.ResponseError{Code: code, Message: text},
	}
}

func refused(to identity.Address, said string) normalized.Response {
	text := to.String() + " did not answer."
	if said != "" {
		text = to.String() + " did not answer: " + said
	}
	return failed(CodeRefused, text)
}

// demanded is a question or a demand of the other agent. The demand goes on without the secret that would let its
// reader answer in our name.
func (c *Caller) demanded(ctx context.Context, task *a2a.Task) (normalized.Response, error) {
	message := task.Status.Message
	if message == nil {
		message = &a2a.Message{}
	}
	policy := policyIn(message.Metadata)
	if policy != nil {
		part := normalized.Part{Kind: normalized.PartPolicy, Policy: policy}
		return c.bounded(normalized.Response{Parts: []normalized.Part{part}, Status: normalized.StatusInputRequired}), nil
	}
	read, err := c.readParts(ctx, message.Parts)
	if err != nil {
		return normalized.Response{}, err
	}
	if len(read) == 0 {
		read = []normalized.Part{normalized.Text("The other agent waits for more input.")}
	}
	return c.bounded(normalized.Response{Parts: read, Status: normalized.StatusInputRequired}), nil
}

// policyIn reads metadata.mentionable.policy; nil when there is no demand that can be shown.
func policyIn(metadata map[string]any) *policypart.Part {
	mentionable, _ := metadata[mentionableKey].(map[string]any)
	encoded, err := json.Marshal(mentionable["policy"])
	if err != nil || len(encoded) > maxMetadataBytes {
		return nil
	}
	var part policypart.Part
	if json.Unmarshal(encoded, &part) != nil || part.Kind == "" || strings.TrimSpace(part.Message) == "" {
		return nil
	}
	delete(part.Data, stateKey)
	return &part
}
