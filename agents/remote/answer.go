package remote

import (
	"context"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents/upstream"
	"inbox/normalized"
)

// Codes of answers that are none.
const (
	codeFailed   = "remote:failed"
	codeRejected = "remote:rejected"
	codeCanceled = "remote:canceled"
)

// answer makes the response of what the other agent said, and what is to be remembered of the conversation.
func (x *exchange) answer(ctx context.Context) (response normalized.Response, next thread, err error) {
	next.Context = orElse(x.task.context, x.thread.Context)
	switch {
	case x.said != nil:
		next.Context = orElse(x.said.ContextID, next.Context)
		response, err = x.completed(ctx, x.said.Parts, nil)
	case x.task.left.Rest:
		response, err = x.completed(ctx, x.spoken(), x.task.artifacts)
	case x.task.waits():
		response, next.Open, err = x.demanded(ctx)
	default:
		response, err = x.ended(ctx)
	}

	if err == nil {
		response, err = x.valid(response)
	}

	return response, next, err
}

// ended is the answer of a task that is over.
func (x *exchange) ended(ctx context.Context) (normalized.Response, error) {
	status := x.task.status
	if policy := policyIn(status.Message); policy != nil && status.State != a2a.TaskStateCompleted {
		return x.refusedBy(*policy), nil
	}

	switch status.State {
	case a2a.TaskStateCompleted:
		return x.completed(ctx, x.spoken(), x.task.artifacts)
	case a2a.TaskStateRejected:
		return failed(codeRejected, sentence("The agent did not take this message", status.Message)), nil
	case a2a.TaskStateCanceled:
		return failed(codeCanceled, sentence("The agent stopped working on this message", status.Message)), nil
	}
	return failed(codeFailed, sentence("The agent could not answer this message", status.Message)), nil
}

// spoken is what was said at the end of the task, or last in the talk.
func (x *exchange) spoken() a2a.ContentParts {
	if message := x.task.status.Message; message != nil {
		return message.Parts
	}
	if last := len(x.task.history) - 1; last >= 0 && x.task.history[last] != nil && x.task.history[last].Role == a2a.MessageRoleAgent {
		return x.task.history[last].Parts
	}
	return nil
}

// completed puts results and words together. Results are the answer; words go before them where they have none.
func (x *exchange) completed(ctx context.Context, words a2a.ContentParts, results []*artifact) (normalized.Response, error) {
	parts, err := x.agent.readArtifacts(ctx, x.keeper(), results, x.peer.card.textMIME())
	if err != nil {
		return normalized.Response{}, err
	}

	if !speaks(parts) {
		said, err := x.agent.readParts(ctx, x.keeper(), words, x.peer.card.textMIME())
		if err != nil {
			return normalized.Response{}, err
		}
		parts = append(said, parts...)
	}
	return normalized.Response{Parts: parts, Status: normalized.StatusCompleted}, nil
}

func speaks(parts []normalized.Part) bool {
	for _, part := range parts {
		if part.Kind == normalized.PartText && strings.TrimSpace(part.Content) != "" {
			return true
		}
	}
	return false
}

// valid brings the answer into the form of the contract. One without content is a deliberate silence.
func (x *exchange) valid(response normalized.Response) (normalized.Response, error) {
	response.Clean()
	if len(response.Parts) == 0 && response.Error == nil && x.task.left == (normalized.Left{}) {
		response.Parts, response.Silent = nil, true
	}

	response, err := response.Completed(x.turn.Message, x.agent.options.Limits, x.task.left)
	if err != nil {
		return response, upstream.NotUsable(err)
	}
	return response, nil
}

func failed(code, text string) normalized.Response {
	return normalized.Response{
		Status: normalized.StatusFailed, Parts: []normalized.Part{normalized.Text(text)},
		Error: &normalized.ResponseError{Code: code, Message: text},
	}
}

// sentence adds the other agent's reason in one line.
func sentence(what string, message *a2a.Message) string {
	if message != nil {
		for _, part := range message.Parts {
			if said := excerpt(partText(part)); said != "" {
				return what + ": " + said
			}
		}
	}
	return what + "."
}
