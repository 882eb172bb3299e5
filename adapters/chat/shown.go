package chat

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/normalized"
)

// States of a ChatTool and of a CompletionExecutedTool.
const (
	toolRunning   = "running"
	toolSucceeded = "succeeded"
	toolFailed    = "failed"
)

// ChatTool is a call of a tool that the agent made, as far as its operator lets readers see it (message contract, section 3).
// A client has nothing to do about it. In a stream the same id comes twice: when the call begins, and with its outcome.
type ChatTool struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Status string          `json:"status"`           // running, succeeded or failed
	Args   json.RawMessage `json:"args,omitempty"`   // any JSON
	Result json.RawMessage `json:"result,omitempty"` // any JSON
	Error  string          `json:"error,omitempty"`
}

func chatToolOf(part normalized.Part) ChatTool {
	shown := ChatTool{ID: part.ID, Name: part.Name, Status: toolRunning, Args: part.Args, Result: part.Result}
	switch {
	case part.Error != nil:
		shown.Status, shown.Error = toolFailed, part.Error.Message
	case part.Ended():
		shown.Status = toolSucceeded
	}
	return shown
}

// toolsOf are the calls that an answer shows, and citationsOf where it comes from.
func toolsOf(turn exchange.TurnRecord) (list []ChatTool) {
	if turn.Response == nil {
		return nil
	}
	for _, part := range turn.Response.Parts {
		if part.Kind == normalized.PartToolCall {
			list = append(list, chatToolOf(part))
		}
	}
	return list
}

func citationsOf(turn exchange.TurnRecord) []normalized.Citation {
	if turn.Response == nil {
		return nil
	}
	_, citations := normalized.Cited(turn.Response.Parts)
	return citations
}

// outcome is the step that ends a call.
func outcome(part normalized.Part, index int) contract.Delta {
	delta := contract.Delta{Kind: contract.DeltaResult, ToolCallID: part.ID, ToolName: part.Name, Index: index, Text: string(part.Result)}
	if part.Error != nil {
		delta.Text, delta.Failed = part.Error.Message, true
	}
	return delta
}

// chatToolOfDelta is what plain REST tells of a step; false where it tells nothing.
func chatToolOfDelta(delta contract.Delta) (ChatTool, bool) {
	shown := ChatTool{ID: delta.ToolCallID, Name: delta.ToolName}
	switch delta.Kind {
	case contract.DeltaCall:
		shown.Status, shown.Args = toolRunning, json.RawMessage(delta.Arguments)
		return shown, true
	case contract.DeltaResult:
		if delta.Failed {
			shown.Status, shown.Error = toolFailed, delta.Text
		} else {
			shown.Status, shown.Result = toolSucceeded, json.RawMessage(delta.Text)
		}
		return shown, true
	case contract.DeltaContent, contract.DeltaArgument, contract.DeltaReset:
	}
	return shown, false
}

// CompletionExecutedTool is a call that the agent made by itself. It is no entry of tool_calls, which are for the client to
// execute, whatever the finish_reason. In chunks the same index and id come twice: when the call begins, and with its outcome.
type CompletionExecutedTool struct {
	Index     int    `json:"index"`
	ID        string `json:"id"`
	Type      string `json:"type"` // function
	Name      string `json:"name"`
	Arguments string `json:"arguments,omitempty"` // JSON
	Status    string `json:"status"`              // running, succeeded or failed
	Output    string `json:"output,omitempty"`    // JSON of the result, or the text of the failure
}

func executedTool(index int, shown ChatTool) CompletionExecutedTool {
	executed := CompletionExecutedTool{
		Index: index, ID: shown.ID, Type: "function", Name: shown.Name, Arguments: string(shown.Args), Status: shown.Status, Output: string(shown.Result),
	}
	if shown.Status == toolFailed {
		executed.Output = shown.Error
	}
	return executed
}

// executed are the calls that the agent made by itself, as far as they are shown. Those that the client executed it knows.
func (c *completion) executed(turn exchange.TurnRecord) (list []CompletionExecutedTool) {
	if c.repeated {
		return nil
	}
	for _, shown := range toolsOf(turn) {
		if !c.executes(shown.Name) {
			list = append(list, executedTool(len(list), shown))
		}
	}
	return list
}

// CompletionAnnotation says where a piece of the text comes from.
type CompletionAnnotation struct {
	Type        string             `json:"type"` // url_citation
	URLCitation CompletionCitation `json:"url_citation"`
}

// CompletionCitation is a source with an address. Its indexes count characters of the whole content.
type CompletionCitation struct {
	StartIndex int    `json:"start_index"`
	EndIndex   int    `json:"end_index"`
	URL        string `json:"url"`
	Title      string `json:"title"`
}

// annotations point to the lines of the sources at the end of a text.
func annotations(text string, citations []normalized.Citation) (list []CompletionAnnotation) {
	block := normalized.Sources(citations)
	at := strings.LastIndex(text, block)
	if block == "" || at < 0 {
		return nil
	}

	begin := utf8.RuneCountInString(text[:at])
	for i, line := range strings.Split(block, "\n") { // the first is the title; each source has one line
		end := begin + utf8.RuneCountInString(line)
		if i > 0 && citations[i-1].SourceURL != "" {
			list = append(list, CompletionAnnotation{"url_citation", CompletionCitation{begin, end, citations[i-1].SourceURL, citations[i-1].Label()}})
		}
		begin = end + 1
	}
	return list
}
