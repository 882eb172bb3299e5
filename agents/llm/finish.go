package llm

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/normalized"
)

const (
	sayRefusal = "The agent's model declined to answer this."
	sayTooLong = "The agent needed more steps than it may take and has no answer."
)

// finish gives what a run came to.
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
		text = concluded
	case envelope.StatusFailed:
		return unusable(errors.New(value.Text(value.Assoc(result["failure"])["message"])))
	}
	response := normalized.Response{Metadata: j.metadata(status)}
	if text == "" || status == envelope.StatusInterrupted || status == envelope.StatusCancelled || status == envelope.StatusIncomplete {
		response.Status, response.Error = normalized.StatusFailed, j.failure(status)
		response.Parts = []normalized.Part{normalized.Text(response.Error.Message)}
		text = ""
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
		return &normalized.ResponseError{Code: "run:" + status, Message: sayTooLong}
	case j.stop == StopRefusal:
		return &normalized.ResponseError{Code: "model:refusal", Message: sayRefusal}
	}
	return &normalized.ResponseError{Code: "model:empty", Message: sayUnusable}
}

// conclude lets the model answer with what it has when a budget ran out or it went in circles.
func (j *job) conclude(ctx context.Context, result map[string]any) (string, error) {
	if value.Text(result["budget"]) == "wall_clock_seconds" {
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
	return strings.TrimSpace(said.text.String()), nil
}

// metadata is what the operator's trace shows: what it took and what it cost.
func (j *job) metadata(status string) map[string]string {
	usage := j.note.Usage
	shown := map[string]string{"model": j.agent.options.Model, "model_calls": strconv.Itoa(j.note.ModelCalls)}
	if status != envelope.StatusCompleted {
		shown["outcome"] = status
	}
	if j.stop != "" {
		shown["stop"] = firstRunes(j.stop, 100)
	}
	for _, name := range []string{"prompt_tokens", "completion_tokens", "total_tokens", "cache_read_tokens", "cache_write_tokens"} {
		if count, whole := value.Integer(usage[name]); whole {
			shown[name] = strconv.FormatInt(count, 10)
		}
	}
	if calls := len(j.answer.calls); calls > 0 {
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
