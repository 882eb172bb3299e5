package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/normalized"
)

// ToolEventsExtension shows calls of tools as data parts {"type","toolCallId","toolName","input","output"?,"error"?}: in status
// messages while the agent works, and in its answer (message contract, section 11). A peer gets them when it names the extension
// in its header and the operator shows the agent's tools; what there is to see of a call the engine has decided.
const ToolEventsExtension = "https://mentionable.dev/ns/a2a-tool-events/v0.1"

// Types of a tool event.
const (
	toolCalled    = "tool-call"
	toolSucceeded = "tool-result"
	toolFailed    = "tool-error"
)

// citationKey is the member of metadata.mentionable of a part that holds where it comes from.
const citationKey = "citation"

// activates reports whether a peer named an extension in its headers. 0.3 wrote the name with X-.
func activates(header http.Header, extension string) bool {
	for _, name := range []string{a2a.SvcParamExtensions, "X-" + a2a.SvcParamExtensions} {
		for uri := range strings.SplitSeq(strings.Join(header.Values(name), ","), ",") {
			if strings.TrimSpace(uri) == extension {
				return true
			}
		}
	}
	return false
}

// noteExtensions keeps what the peer activated that changes answers.
func (c *call) noteExtensions(header http.Header) {
	c.toolEvents = c.agent.ShowsTools && activates(header, ToolEventsExtension)
}

// readsToolEvents reports whether the peer of a request activated tool events.
func readsToolEvents(ctx context.Context) bool {
	c, known := callOf(ctx)
	return known && c.toolEvents
}

// toolEvent is a call of a tool as a data part. The second result is false for JSON that cannot be read.
func toolEvent(part normalized.Part) (*a2a.Part, bool) {
	event := map[string]any{"type": toolCalled, "toolCallId": part.ID, "toolName": part.Name, "input": map[string]any{}}
	switch {
	case part.Error != nil:
		event["type"], event["error"] = toolFailed, map[string]any{"message": part.Error.Message}
	case part.Ended():
		event["type"] = toolSucceeded
	}

	for name, raw := range map[string]json.RawMessage{"input": part.Args, "output": part.Result, "metadata": part.Metadata} {
		if len(raw) == 0 {
			continue
		}
		plain, is := exactValue(raw)
		if !is {
			return nil, false
		}
		event[name] = plain
	}

	return a2a.NewDataPart(event), true
}

// tool tells the reader of a stream that a call began, or how it ended.
func (f *follower) tool(event exchange.Event) bool {
	if !f.call.toolEvents {
		return true
	}

	var delta normalized.Delta
	if err := json.Unmarshal(event.Body, &delta); err != nil {
		return f.fail(fmt.Errorf("read delta %d of turn %s: %w", event.Seq, event.TurnID, err))
	}
	if delta.Kind != normalized.DeltaToolCallStart && delta.Kind != normalized.DeltaToolCallEnd || delta.Part == nil || f.told[toldCall{delta.Kind, delta.Part.ID}] {
		return true
	}

	part, ok := toolEvent(*delta.Part)
	if !ok {
		return true
	}

	if f.told == nil {
		f.told = map[toldCall]bool{}
	}

	f.told[toldCall{delta.Kind, delta.Part.ID}] = true
	message := newAnswerMessage(f.task, *f.task.last())
	message.ID += "." + strconv.FormatInt(event.Seq, 10)
	message.Parts, message.Extensions = a2a.ContentParts{part}, []string{ToolEventsExtension}
	return f.status(a2a.TaskStatus{State: a2a.TaskStateWorking, Message: message, Timestamp: stamp(event.At)})
}

// toldCall is a step of a call that a reader has: a run that was cut off makes its calls again.
type toldCall struct{ kind, id string }

// cited adds to the metadata of a part where it comes from.
func cited(metadata map[string]any, citation *normalized.Citation) map[string]any {
	if citation == nil {
		return metadata
	}
	encoded, err := json.Marshal(citation)
	if err != nil {
		return metadata
	}
	plain, is := exactValue(encoded)
	if !is {
		return metadata
	}

	if metadata == nil {
		metadata = map[string]any{}
	}

	metadata[mentionableKey] = map[string]any{citationKey: plain}
	return metadata
}

// citationIn reads the citation of a peer's part; nil without one.
func citationIn(metadata map[string]any) *normalized.Citation {
	mentionable, _ := metadata[mentionableKey].(map[string]any)
	given, is := mentionable[citationKey].(map[string]any)
	if !is {
		return nil
	}
	citation, ok := normalized.CitationOf(given)
	if !ok {
		return nil
	}
	return &citation
}
