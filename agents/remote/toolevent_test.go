package remote

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"inbox/normalized"
)

// TestToolEventsBecomeCalls: what another server tells of its tools are calls like those of any agent, and its sources are
// sources (message contract, section 11).
func TestToolEventsBecomeCalls(t *testing.T) {
	event := func(kind, id string, more map[string]any) *a2a.Part {
		data := map[string]any{"type": kind, "toolCallId": id, "toolName": "docs/search", "input": map[string]any{"q": "x"}}
		maps.Copy(data, more)
		return a2a.NewDataPart(data)
	}
	source := func(part *a2a.Part, citation map[string]any) *a2a.Part {
		part.Metadata = map[string]any{"mentionable": map[string]any{"citation": citation}}
		return part
	}
	results := a2a.ContentParts{
		event("tool-call", "1", nil), event("tool-result", "1", map[string]any{"output": map[string]any{"n": 1}}),
		event("tool-error", "2", map[string]any{"error": map[string]any{"message": "It broke."}}),
		event("tool-call", "3", nil), event("tool-result", "4", nil),
		event("tool-dance", "5", nil), event("tool-result", "", nil),
		a2a.NewTextPart("Here it is."),
		source(&a2a.Part{Content: a2a.URL("https://docs.test/a"), MediaType: "text/html", Filename: "A"}, map[string]any{"source_title": "A", "source_url": "https://docs.test/a", "token": "s3cret"}),
		source(a2a.NewTextPart("s3cret words"), map[string]any{"source": "wages", "access_status": "denied"}),
	}
	server := startUpstream(t, wayRPC, true, func(_ context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
		artifact := a2a.NewArtifactEvent(call, results...)
		_ = yield(a2a.NewSubmittedTask(call, call.Message), nil) && yield(artifact, nil) && yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, nil), nil)
	})
	response := mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x")).response
	response.Clean()
	var lines []string
	for _, part := range response.Parts {
		line := part.Kind + " " + part.ID + part.URL + part.Content
		if part.Kind == normalized.PartToolCall {
			line += " " + part.Name + " " + string(part.Args) + " " + string(part.Result)
		}
		if part.Error != nil {
			line += part.Error.Message
		}
		if part.Kind == normalized.PartArtifact {
			line = part.Kind + " " + part.MIME + " of " + strings.TrimPrefix(part.ID[len(part.ID)-2:], ".")
		}
		if part.Citation != nil {
			line += " cites " + part.Citation.Label()
		}
		lines = append(lines, line)
	}
	want := `tool_call 1 docs/search {"q":"x"} {"n":1}
tool_call 2 docs/search {"q":"x"} It broke.
tool_call 3 docs/search {"q":"x"} The call did not end.
tool_call 4 docs/search {"q":"x"} {}
artifact application/json of 4
artifact application/json of 5
text Here it is.
link https://docs.test/a cites A
text wages (no access) cites wages (no access)`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
