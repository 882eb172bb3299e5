package llm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

// Bounds of the names in a step: a model may make up arguments.
const (
	maxStepKeys  = 32
	maxStepRunes = 200
)

// begun is a tool call that has not ended.
type begun struct {
	at        time.Time
	arguments exchange.ToolArguments
}

// modelEnded puts a call of the model on the timeline.
func (j *job) modelEnded(started time.Time, model, purpose string, said *reply, err error) {
	price := &j.agent.options.Price
	step := exchange.ModelStep{
		Number: j.note.ModelCalls, Model: shortened(model), Purpose: purpose, Millis: time.Since(started).Milliseconds(),
		Input: said.usage.Input, Output: said.usage.Output, CacheRead: said.usage.CacheRead, CacheWrite: said.usage.CacheWrite,
		Cost: price.of(said.usage.tokens()), Stop: shortened(said.stop), ToolCalls: len(said.calls),
	}
	if step.Cost > 0 {
		step.Currency = price.Currency
	}

	if err != nil {
		step.Error = excerpt(err.Error(), "")
		if errors.Is(err, context.Canceled) {
			step.Error = "stopped"
		}
	}

	j.turn.Did(exchange.EventModelCalled, step)
}

func (j *job) toolBegins(payload map[string]any) {
	if j.begun == nil {
		j.begun = map[string]begun{}
	}
	j.begun[value.Text(payload["tool_call_id"])] = begun{time.Now(), argumentsOf(value.Assoc(payload["parameters"]))}
}

func argumentsOf(parameters map[string]any) exchange.ToolArguments {
	keys := slices.AppendSeq(make([]string, 0, len(parameters)), maps.Keys(parameters))
	slices.Sort(keys)
	for i := range keys {
		keys[i] = shortened(keys[i])
	}
	return exchange.ToolArguments{Keys: keys[:min(len(keys), maxStepKeys):len(keys)], Count: len(keys), Redacted: true}
}

// toolEnded puts a call of a tool on the timeline.
func (j *job) toolEnded(id, name string, result map[string]any) {
	started, known := j.begun[id]
	delete(j.begun, id)
	j.hooked.ended = id
	j.note.count(j.tools.Resolve(name), 1)
	step := exchange.ToolStep{Name: shortened(j.tools.Resolve(name)), CallID: id, Status: exchange.ToolFailed, Arguments: started.arguments}
	if known {
		step.Millis = time.Since(started.at).Milliseconds()
	}
	if step.Arguments.Keys == nil {
		step.Arguments = argumentsOf(nil)
	}

	if succeeded(result) {
		step.Status, step.Result = exchange.ToolSucceeded, shapeOf(result["result"])
	} else {
		step.ErrorType = shortened(value.Text(value.Assoc(result["metadata"])["error_type"]))
		if rejections[step.ErrorType] {
			step.Status = exchange.ToolRejected
		}
	}

	j.turn.Did(exchange.EventToolCalled, step)
}

// rejections are the kinds of failures of calls that were not made.
var rejections = map[string]bool{
	"action_forbidden": true, "unreadable_arguments": true, "approval_unavailable": true, "pre_tool_mediation_rejected": true,
	"tool_call_gate_rejected": true, "tool_not_found": true, "missing_required_parameters": true,
	"mediator_unavailable": true, "approval_denied": true, "approval_expired": true, "questions_used_up": true,
}

// shapeOf says how large a result is (agent runtime contract, section 2.2).
func shapeOf(given any) *exchange.ToolShape {
	switch typed := value.Plain(given).(type) {
	case nil:
		return &exchange.ToolShape{Type: "null"}
	case map[string]any:
		return &exchange.ToolShape{Type: "object", Count: len(typed)}
	case []any:
		return &exchange.ToolShape{Type: "array", Count: len(typed)}
	case string:
		return &exchange.ToolShape{Type: "string", Size: len(typed)}
	case bool:
		return &exchange.ToolShape{Type: "boolean"}
	default:
		if _, whole := value.Integer(typed); whole {
			return &exchange.ToolShape{Type: "integer"}
		}
		return &exchange.ToolShape{Type: "double"}
	}
}

// waits puts the parking of the run on the timeline.
func (j *job) waits(waiting *Waiting, calls int) {
	if calls == 1 {
		calls = 0 // what everybody expects
	}
	j.turn.Did(exchange.EventRunWaits, exchange.WaitStep{
		For: waiting.Status, Tool: shortened(j.tools.Resolve(waiting.ToolName)), CallID: waiting.CallID, Calls: calls,
	})
}

func shortened(text string) string {
	if runes := []rune(text); len(runes) > maxStepRunes {
		return string(runes[:maxStepRunes])
	}
	return text
}

// of returns the cost of all calls; without prices what the provider said.
func (p Price) of(usage map[string]any) float64 {
	count := func(name string) float64 {
		number, _ := value.Integer(usage[name])
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

var (
	// outcome: answered, retry, failed, stopped
	modelRequests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_model_requests_total", Help: "Requests to model providers by outcome, each attempt counted.",
	}, []string{"outcome"})
	modelSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_model_seconds", Help: "Time from a request to a model provider to the end of its answer.",
		Buckets: telemetry.NetworkSeconds,
	})
	// kind: input, output, cache_read, cache_write
	modelTokens = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_model_tokens_total", Help: "Tokens that model providers counted; input holds those of the cache.",
	}, []string{"kind"})
)

func observeRequest(started time.Time, err error) {
	modelSeconds.Observe(time.Since(started).Seconds())
	outcome := "answered"
	carried, faulty := errors.AsType[*fault.Fault](err)
	switch {
	case faulty && carried.Permanent:
		outcome = "failed"
	case faulty:
		outcome = "retry"
	case err != nil:
		outcome = "stopped"
	}
	modelRequests.WithLabelValues(outcome).Inc()
}

func observeTokens(usage Usage) {
	for kind, count := range map[string]int64{
		"input": usage.Input, "output": usage.Output, "cache_read": usage.CacheRead, "cache_write": usage.CacheWrite,
	} {
		modelTokens.WithLabelValues(kind).Add(float64(max(0, count)))
	}
}
