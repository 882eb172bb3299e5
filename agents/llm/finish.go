package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"inbox/agents/envelope"
	"inbox/normalized"
	"inbox/policypart"
)

// CodeApproval is the code of the policy part with which a run waits for a person's decision about a tool.
const CodeApproval = "approval:required"

// DataApproval is the member of that part's data: {"action_id","tool_name","tool_call_id"}.
const DataApproval = "dev.mentionable.approval"

const (
	sayRefusal = "The agent's model declined to answer this."
	sayTooLong = "The agent needed more steps than it may take and has no answer."
)

// finish gives what a run came to.
func (j *job) finish(ctx context.Context, result map[string]any) error {
	outcome := envelope.Assoc(result["run_outcome"])
	status := envelope.Text(outcome["status"])
	text := strings.TrimSpace(envelope.Text(result["final_content"]))
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
		return unusable(errors.New(envelope.Text(envelope.Assoc(result["failure"])["message"])))
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
	if envelope.Text(result["budget"]) == "wall_clock_seconds" {
		return "", nil
	}
	transcript, err := envelope.NormalizeMany(result["messages"])
	if err != nil {
		return "", unusable(err)
	}
	transcript = append(transcript, envelope.UserText("(No more tools can be used. Answer now with what you have.)", nil))
	said, err := j.ask(ctx, transcript, true)
	if err != nil {
		return "", err
	}
	j.note.add(said.usage.tokens())
	return strings.TrimSpace(said.text.String()), nil
}

// wait keeps the run and asks for what it waits for.
func (j *job) wait(ctx context.Context, result map[string]any, status string) error {
	transcript, err := envelope.NormalizeMany(result["messages"])
	if err != nil {
		return unusable(err)
	}
	waiting := waitingFor(result, transcript, status)
	if err := j.pause(ctx, transcript, waiting); err != nil {
		return err
	}
	return j.park(waiting, j.note.Usage)
}

// park answers that the run waits.
func (j *job) park(waiting *Waiting, _ map[string]any) error {
	response := normalized.Response{Status: normalized.StatusInputRequired, Metadata: j.metadata(waiting.Status)}
	text := ""
	if waiting.Status == envelope.StatusApprovalRequired {
		response.Parts = []normalized.Part{{Kind: normalized.PartPolicy, Policy: demand(waiting)}}
	} else if _, shown := j.answer.calls[waiting.CallID]; !shown {
		text = "The agent waits for the result of " + waiting.ToolName + "."
	}
	j.answer.close(response, text)
	return nil
}

// demand is the policy part of a tool that needs approval.
func demand(waiting *Waiting) *policypart.Part {
	summary := strings.TrimSpace(envelope.Text(waiting.Request["content"]))
	if summary == "" {
		summary = fmt.Sprintf("Before the agent uses %s, somebody has to agree.", quote(waiting.ToolName))
	}
	payload := envelope.Assoc(waiting.Request["payload"])
	data := envelope.EncodeText(map[string]any{
		"action_id": envelope.Text(payload["action_id"]), "tool_name": waiting.ToolName, "tool_call_id": waiting.CallID,
	})
	return &policypart.Part{
		Kind: policypart.ConsentRequired, Code: CodeApproval, Title: "Approval needed", Message: firstRunes(summary, 2000),
		Data: map[string]json.RawMessage{DataApproval: json.RawMessage(data)},
	}
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
		if count, whole := envelope.Integer(usage[name]); whole {
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

// of gives the cost of all calls; without prices what the provider said.
func (p Price) of(usage map[string]any) float64 {
	count := func(name string) float64 {
		number, _ := envelope.Integer(usage[name])
		return float64(number)
	}
	if p.Input == 0 && p.Output == 0 {
		said, _ := strconv.ParseFloat(fmt.Sprint(usage["cost"]), 64) // absent is no number
		return said
	}
	read, write := count("cache_read_tokens"), count("cache_write_tokens")
	fresh := max(0, count("prompt_tokens")-read-write)
	cost := fresh*p.Input + count("completion_tokens")*p.Output + read*orElse(p.CacheRead, p.Input) + write*orElse(p.CacheWrite, p.Input)
	return cost / 1e6
}

func orElse(price, otherwise float64) float64 {
	if price > 0 {
		return price
	}
	return otherwise
}
