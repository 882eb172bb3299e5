package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/task"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/policypart"
)

// ResultFile is the name of a file in an answer that is the task result itself, for executors that know the contract.
const ResultFile = "task-result.json"

// maxDataBytes bounds a file of JSON that is read into a result.
const maxDataBytes = 1 << 20

// resultOf is a run as its turn stands. Without events it is brief: what stands in files and on the timeline is left out.
func (rs *runs) resultOf(ctx context.Context, row exchange.TaskRun, turn exchange.TurnRecord, events []exchange.Event) (map[string]any, error) {
	decoded, err := value.Decode(row.Started, value.Limits{})
	if err != nil {
		return nil, fmt.Errorf("decode task run %s: %w", row.ID, err)
	}

	begun := value.Assoc(decoded)
	outcome := map[string]any{
		"status": statusOf(turn), "updated_at": task.Timestamp(turn.UpdatedAt), "started_at": task.Timestamp(turn.AcceptedAt),
		"provenance": map[string]any{"agent": turn.Agent, "turn_id": turn.ID, "channel": turn.Channel, "attempt": turn.Attempt},
	}
	addWaiting(outcome, turn, rs.options.Present)

	var failure error
	if answered(turn) {
		failure = failureOf(turn)
		if text := markup.PlainText(turn.Response.Parts); text != "" && failure == nil {
			outcome["output"] = map[string]any{"text": text}
		}
		outcome["artifact_refs"] = rs.references(turn)
	}

	if events != nil {
		outcome["events"] = eventsOf(events)
		outcome["execution_metrics"] = metricsOf(turn, events, value.Text(value.Assoc(begun["metadata"])["target_kind"]))
		if answered(turn) && failure == nil {
			failure = rs.addFiles(ctx, outcome, turn)
		}
	}

	if failure == nil && turn.State == exchange.StateFailed || turn.State == exchange.StateRefused && failure == nil {
		failure = &task.Error{Code: task.CodeFailed, Message: "The task run failed."}
	}
	return task.Result(begun, outcome, failure)
}

// answered reports whether a turn has an answer that is its last word.
func answered(turn exchange.TurnRecord) bool {
	return turn.Response != nil && exchange.Terminal(turn.State) && turn.State != exchange.StateCancelled
}

// statusOf is the state of a turn in the words of tasks (agent runtime contract, section 7). A turn that was cancelled has ended, so
// that nothing is ever cancelling.
func statusOf(turn exchange.TurnRecord) string {
	switch turn.State {
	case exchange.StateAccepted, exchange.StateHeld:
		return task.StatusQueued
	case exchange.StateRunning, exchange.StateWaiting:
		return task.StatusRunning
	case exchange.StateAnswered, exchange.StateSilent:
		return task.StatusSucceeded
	case exchange.StateCancelled:
		return task.StatusCancelled
	}
	return task.StatusFailed
}

// addWaiting says for what a run waits that someone outside has to do.
func addWaiting(outcome map[string]any, turn exchange.TurnRecord, present func(policypart.Part) policypart.Part) {
	switch {
	case turn.State == exchange.StateHeld:
		outcome["metadata"] = map[string]any{"waiting_for": envelope.StatusApprovalRequired}
		return
	case turn.State != exchange.StateWaiting || turn.Reason == exchange.WaitingDispatch:
		return
	case strings.HasPrefix(turn.Reason, exchange.WaitingTool):
		outcome["metadata"] = map[string]any{"waiting_for": envelope.StatusRuntimeToolPending}
		return
	}

	outcome["metadata"] = map[string]any{"waiting_for": envelope.StatusApprovalRequired}
	if turn.Response == nil || turn.Response.Policy() == nil {
		return
	}
	demand := present(*turn.Response.Policy())
	outcome["diagnostics"] = map[string]any{"demand": map[string]any{
		"kind": demand.Kind, "title": demand.Title, "message": demand.Message, "url": demand.URL,
	}}
}

// codeInput is the code of a run whose agent asks back: no one is there to answer.
const codeInput = "input_required"

// failureOf says why an answer is none to the task; nil = it is one.
func failureOf(turn exchange.TurnRecord) error {
	response := turn.Response
	text := markup.PlainText(response.Parts)
	stopped := response.Stopped()
	switch outcome := exchange.OutcomeOf(response); {
	case response.Error != nil:
		return &task.Error{Code: cmp.Or(response.Error.Code, task.CodeFailed), Message: cmp.Or(response.Error.Message, text, "The task run failed.")}
	case stopped != "":
		return &task.Error{Code: stopped, Message: cmp.Or(text, "The run stopped before its work was done.")}
	case outcome == exchange.OutcomeInput:
		return &task.Error{Code: codeInput, Message: cmp.Or(text, "The agent asked back.")}
	case outcome != exchange.OutcomeAnswer, turn.State == exchange.StateFailed, turn.State == exchange.StateRefused:
		code := task.CodeFailed
		if policy := response.Policy(); policy != nil {
			code, text = policy.Kind, policy.Message
		}
		return &task.Error{Code: code, Message: cmp.Or(text, "The task run failed.")}
	}
	return nil
}

// references are the files of an answer.
func (rs *runs) references(turn exchange.TurnRecord) []any {
	reply := exchange.Reply{
		ID: turn.ReplyID, TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, Route: turn.Route, Response: *turn.Response,
	}

	list := []any{}
	for _, part := range turn.Response.Parts {
		if !isFile(part) || part.Name == ResultFile {
			continue
		}
		address := rs.options.FileURL(reply, part)
		if part.BytesRef.Kind == normalized.BytesURL {
			address = part.BytesRef.URL
		}

		reference := map[string]any{"type": cmp.Or(part.ArtifactType, part.Kind)}
		for name, text := range map[string]string{
			"id": part.ID, "label": part.Name, "url": address, "mime_type": part.MIME, "sha256": digestOf(part), "description": cmp.Or(part.Description, part.Alt),
		} {
			if text != "" {
				reference[name] = text
			}
		}
		if part.Size > 0 {
			reference["size"] = part.Size
		}
		list = append(list, reference)
	}
	return list
}

func isFile(part normalized.Part) bool {
	return (part.Kind == normalized.PartFile || part.Kind == normalized.PartArtifact) && part.BytesRef != nil
}

func digestOf(part normalized.Part) string {
	if content, err := part.BytesRef.Bytes(); err == nil {
		return normalized.Digest(content)
	}
	return part.BytesRef.Digest
}

// addFiles reads what an answer says in JSON: data beside its text, or the task result itself.
func (rs *runs) addFiles(ctx context.Context, outcome map[string]any, turn exchange.TurnRecord) error {
	var data []any
	for _, part := range turn.Response.Parts {
		if !isFile(part) || part.Name != ResultFile && part.MIME != mimeJSON {
			continue
		}

		given, read, err := rs.readJSON(ctx, part)
		switch {
		case err != nil:
			return err
		case part.Name == ResultFile:
			return merge(outcome, given)
		case read:
			data = append(data, given)
		}
	}

	if len(data) == 0 {
		return nil
	}
	output := value.ShallowCopy(outcome["output"])
	if output["data"] = data; len(data) == 1 {
		output["data"] = data[0]
	}
	outcome["output"] = output
	return nil
}

// readJSON reads a file; not read = it is elsewhere, too large, gone, or no JSON. Its error is that of the blob store.
func (rs *runs) readJSON(ctx context.Context, part normalized.Part) (given any, read bool, err error) {
	content, inlined := part.BytesRef.Bytes()
	if inlined != nil {
		if part.BytesRef.Kind != normalized.BytesContentAddressed || part.Size > maxDataBytes {
			return nil, false, nil
		}
		opened, err := rs.options.Blobs.Open(ctx, part.BytesRef.Digest)
		if fault.Is(err, fault.NotFound) { // it was erased
			return nil, false, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("read %s: %w", part.Name, err)
		}
		defer func() { _ = opened.Close() }()
		if content, err = io.ReadAll(io.LimitReader(opened, maxDataBytes+1)); err != nil {
			return nil, false, fmt.Errorf("read %s: %w", part.Name, err)
		}
	}

	given, err = value.Decode(content, value.Limits{Bytes: maxDataBytes, Depth: maxDepth})
	return given, err == nil, nil
}

// merge puts the result that an executor gave over what is known without it. The turn has ended, so the run has, too.
func merge(outcome map[string]any, given any) error {
	own, is := value.Object(given)
	if !is {
		return &task.Error{Code: task.CodeInvalidResult, Message: "The handler gave no object of the form agents-api/task-result/v1."}
	}

	said, told := own["status"]
	if told && !task.Terminal(task.NormalizeStatus(said)) {
		return &task.Error{Code: task.CodeInvalidResult, Message: "The handler gave a result with the status " + strconv.Quote(value.Scalar(said)) + ", and nothing runs any more."}
	}

	metrics := value.ShallowCopy(outcome["execution_metrics"])
	maps.Copy(metrics, value.ShallowCopy(own["execution_metrics"]))
	provenance := value.ShallowCopy(own["provenance"])
	maps.Copy(provenance, value.ShallowCopy(outcome["provenance"]))

	references := append(value.Elements(own["artifact_refs"]), value.Elements(outcome["artifact_refs"])...)
	events := append(value.Elements(outcome["events"]), value.Elements(own["events"])...)
	for _, name := range []string{"status", "output", "diagnostics", "metadata"} {
		if own[name] != nil {
			outcome[name] = own[name]
		}
	}
	outcome["execution_metrics"], outcome["provenance"], outcome["artifact_refs"], outcome["events"] = metrics, provenance, references, events
	return nil
}

// eventsOf are the rows of a timeline without texts: what the agent said is in the result, and what it did is the operator's.
func eventsOf(events []exchange.Event) []any {
	list := []any{}
	for _, one := range events {
		if one.Kind == exchange.EventDelta {
			continue
		}
		list = append(list, map[string]any{
			"id": strconv.FormatInt(one.Seq, 10), "type": exchange.RunEventType(one.Kind), "created_at": task.Timestamp(one.At), "metadata": map[string]any{"kind": one.Kind},
		})
	}
	return list
}

// metricsOf are times in milliseconds, sizes in bytes and what models and tools took.
func metricsOf(turn exchange.TurnRecord, events []exchange.Event, environment string) map[string]any {
	metrics := map[string]any{"environment": environment}
	if exchange.Terminal(turn.State) {
		metrics["wall_time_ms"] = turn.UpdatedAt.Sub(turn.AcceptedAt).Milliseconds()
	}

	for _, one := range events {
		if one.Kind == "turn."+exchange.StateRunning {
			metrics["startup_time_ms"] = one.At.Sub(turn.AcceptedAt).Milliseconds()
			break
		}
	}

	if answered(turn) {
		size := int64(0)
		for _, part := range turn.Response.Parts {
			size += part.Size
		}
		metrics["artifact_bytes"] = size
	}

	spent := exchange.SpentBy(events)
	if spent == nil {
		return metrics
	}
	metrics["tool_call_count"] = spent.ToolCalls
	if encoded, err := json.Marshal(spent); err == nil {
		if usage, err := value.Decode(encoded, value.Limits{}); err == nil {
			metrics["usage"] = usage
		}
	}
	return metrics
}
