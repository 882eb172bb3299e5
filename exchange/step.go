package exchange

import (
	"encoding/json"
	"math"
)

// Kinds of an Event about what an agent did on its way to an answer. They are for the operator: no adapter shows them, and
// they hold neither texts nor values of arguments. An agent of an embedding program may write the same kinds.
const (
	EventModelCalled = "model.called"  // body: ModelStep
	EventToolCalled  = "tool.called"   // body: ToolStep
	EventRunWaits    = "run.waits"     // body: WaitStep
	EventCompacted   = "run.compacted" // body: CompactionStep
)

// ModelStep is one call of a model, with its repetitions.
type ModelStep struct {
	Number     int     `json:"n"` // counts the calls of the turn from 1
	Model      string  `json:"model"`
	Purpose    string  `json:"purpose,omitempty"` // empty = the next step of the conversation; "conclude", "summary"
	Millis     int64   `json:"ms"`
	Input      int64   `json:"prompt_tokens"` // those from and for the cache are among them
	Output     int64   `json:"completion_tokens"`
	CacheRead  int64   `json:"cache_read_tokens,omitempty"`
	CacheWrite int64   `json:"cache_write_tokens,omitempty"`
	Cost       float64 `json:"cost,omitempty"`
	Currency   string  `json:"currency,omitempty"`
	Stop       string  `json:"stop,omitempty"`
	ToolCalls  int     `json:"tool_calls,omitempty"` // that it asked for
	Error      string  `json:"error,omitempty"`
}

// States of a ToolStep.
const (
	ToolSucceeded = "succeeded"
	ToolFailed    = "failed"
	ToolRejected  = "rejected" // it was not called
)

// ToolStep is one call of a tool that ended.
type ToolStep struct {
	Name      string        `json:"tool"`
	CallID    string        `json:"tool_call_id"`
	Status    string        `json:"status"`
	Millis    int64         `json:"ms"`
	Arguments ToolArguments `json:"arguments"`
	Result    *ToolShape    `json:"result,omitempty"` // of a success
	ErrorType string        `json:"error_type,omitempty"`
}

// ToolArguments is what may be known of arguments (agent runtime contract, section 2.2).
type ToolArguments struct {
	Keys     []string `json:"keys"`
	Count    int      `json:"count"`
	Redacted bool     `json:"redacted"` // always true
}

// ToolShape says how large a result was: members of an object, items of an array, bytes of a string.
type ToolShape struct {
	Type  string `json:"type"`
	Count int    `json:"count,omitempty"`
	Size  int    `json:"size,omitempty"`
}

// WaitStep says for what a run was parked.
type WaitStep struct {
	For    string `json:"for"` // approval_required, runtime_tool_pending or dispatch
	Tool   string `json:"tool"`
	CallID string `json:"tool_call_id"`
	Calls  int    `json:"calls,omitempty"` // that wait together
}

// CompactionStep says how a conversation was shortened.
type CompactionStep struct {
	Status    string `json:"status"` // compacted, archived or failed
	Of        string `json:"of"`     // history or steps
	Messages  int    `json:"messages"`
	Kept      int    `json:"kept"`
	Before    int    `json:"bytes_before"`
	After     int    `json:"bytes_after"`
	ArchiveID string `json:"archive_id,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Spent is what the steps of a turn took together.
type Spent struct {
	ModelCalls int     `json:"model_calls"`
	ToolCalls  int     `json:"tool_calls"`
	Input      int64   `json:"prompt_tokens"`
	Output     int64   `json:"completion_tokens"`
	CacheRead  int64   `json:"cache_read_tokens"`
	CacheWrite int64   `json:"cache_write_tokens"`
	ModelMS    int64   `json:"model_ms"`
	Cost       float64 `json:"cost"`
	Currency   string  `json:"currency,omitempty"`
}

// SpentBy sums the steps among the events; nil when there are none. Costs are rounded to a billionth of their unit.
func SpentBy(events []Event) *Spent {
	var sum Spent
	stepped := false
	for i := range events {
		switch events[i].Kind {
		case EventModelCalled:
			var step ModelStep
			if json.Unmarshal(events[i].Body, &step) == nil {
				stepped = true
				sum.add(&step)
			}
		case EventToolCalled:
			stepped = true
			sum.ToolCalls++
		}
	}
	if !stepped {
		return nil
	}
	sum.Cost = math.Round(sum.Cost*1e9) / 1e9
	return &sum
}

func (s *Spent) add(step *ModelStep) {
	s.ModelCalls++
	s.Input += step.Input
	s.Output += step.Output
	s.CacheRead += step.CacheRead
	s.CacheWrite += step.CacheWrite
	s.ModelMS += step.Millis
	s.Cost += step.Cost
	if step.Currency != "" {
		s.Currency = step.Currency
	}
}
