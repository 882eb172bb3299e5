package pipeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/normalized"
	"inbox/policypart"
)

func endedCall(id, result string) normalized.Part {
	return normalized.Part{Kind: normalized.PartToolCall, ID: id, Name: "search", Args: json.RawMessage(`{"q":"x","password":"p"}`), Result: json.RawMessage(result)}
}

// kindsOf writes an answer as a line for each part.
func kindsOf(parts []normalized.Part) (lines []string) {
	for _, part := range parts {
		line := part.Kind + " " + part.Content + part.URL + part.Name
		if part.Kind == normalized.PartToolCall {
			line += fmt.Sprintf(" %s %s", part.Args, part.Result)
			if part.Error != nil {
				line += " " + part.Error.Message
			}
		}
		if part.Citation != nil {
			line += " cites " + part.Citation.Label()
		}
		lines = append(lines, line)
	}
	return lines
}

// TestShowing: what the readers of an answer get under each setting (message contract, section 3).
func TestShowing(t *testing.T) {
	cited := endedCall("1", `{"n":[{"token":"t"},2],"metadata":{"citations":[{"source_title":"Docs","source_url":"https://d.test/"},{"source":"wages","excerpt":"e","access_status":"denied"}]}}`)
	failed := endedCall("2", ``)
	failed.Result, failed.Error = nil, &normalized.ToolError{Message: "broke"}
	beside := endedCall("3", `"ok"`)
	beside.Metadata = json.RawMessage(`{"secret":"s","citations":[{"source_title":"Docs","source_url":"https://d.test/"},{"source_title":"More","source_url":"https://m.test/"}]}`)
	own := normalized.Part{Kind: normalized.PartLink, URL: "https://m.test/", Title: "My own link"}
	demand := normalized.Part{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.Forbidden, Message: "no"}}
	parts := []normalized.Part{cited, normalized.Text("hello"), failed, own, beside, demand}
	sources := []string{"link https://d.test/ cites Docs", "text wages (no access) cites wages (no access)"}
	tests := map[string][]string{
		agents.ShowToolsNone: {"text hello", "link https://m.test/"},
		agents.ShowToolsNames: {
			`tool_call search  {"success":true}`, "text hello", `tool_call search   The tool failed.`, "link https://m.test/", `tool_call search  {"success":true}`,
		},
		agents.ShowToolsFull: {
			`tool_call search {"password":"[redacted]","q":"x"} {"metadata":{"citations":[{"source_title":"Docs","source_url":"https://d.test/"},{"access_status":"denied","source":"wages"}]},"n":[{"token":"[redacted]"},2]}`,
			"text hello", `tool_call search {"password":"[redacted]","q":"x"}  broke`, "link https://m.test/", `tool_call search {"password":"[redacted]","q":"x"} "ok"`,
		},
	}
	for setting, want := range tests {
		t.Run(setting, func(t *testing.T) {
			s := &showing{setting: setting, limits: normalized.DefaultLimits()}
			shown := s.response(normalized.Response{Parts: parts})
			if difference := cmp.Diff(append(append(want, sources...), "policy "), kindsOf(shown.Parts)); difference != "" {
				t.Error(difference)
			}
			if again := s.response(shown); cmp.Diff(kindsOf(shown.Parts), kindsOf(again.Parts)) != "" {
				t.Errorf("a second time it is %q", kindsOf(again.Parts))
			}
			if encoded, _ := json.Marshal(shown); strings.Contains(string(encoded), `"s"`) || strings.Contains(string(encoded), `"p"`) {
				t.Errorf("a secret is in %s", encoded)
			}
		})
	}
	if encoded, _ := json.Marshal(parts); !strings.Contains(string(encoded), `"password":"p"`) {
		t.Errorf("the agent's own parts were changed: %s", encoded)
	}
}

func TestShowingBounds(t *testing.T) {
	var list []string
	for i := range 2 * normalized.MaxCitations {
		list = append(list, fmt.Sprintf(`{"source_url":"https://d.test/%d"}`, i))
	}
	many := endedCall("1", `{"metadata":{"citations":[`+strings.Join(list, ",")+`]}}`)
	s := &showing{setting: agents.ShowToolsNone, limits: normalized.DefaultLimits()}
	if got := len(s.response(normalized.Response{Parts: []normalized.Part{many, normalized.Text("x")}}).Parts); got != 2+normalized.MaxCitations {
		t.Errorf("%d parts", got)
	}
	full := []normalized.Part{many}
	for range normalized.DefaultLimits().Parts - 1 {
		full = append(full, normalized.Text("x"))
	}
	if got := len(s.response(normalized.Response{Parts: full}).Parts); got != 2+normalized.MaxCitations { // the texts are joined
		t.Errorf("%d parts", got)
	}
	alone := s.response(normalized.Response{Parts: []normalized.Part{endedCall("1", `1`)}})
	if len(alone.Parts) != 1 || alone.Parts[0].Content != sayNothingElse {
		t.Errorf("an answer of hidden calls alone: %+v", alone.Parts)
	}
	s = &showing{setting: agents.ShowToolsFull, limits: normalized.Limits{ToolJSON: 40}}
	if got := s.redacted(json.RawMessage(`{"a":{"token":1},"b":{"token":1},"c":{"token":1}}`)); string(got) != `{"original_bytes":49,"truncated":true}` {
		t.Errorf("what grew is %s", got)
	}
}

// TestShowingDeltas: the fold of what readers get is what the fold of all shows them in the end, but for the sources.
func TestShowingDeltas(t *testing.T) {
	start := endedCall("1", ``)
	start.Result = nil
	end := endedCall("1", `{"n":1}`)
	denied := normalized.Part{Kind: normalized.PartLink, URL: "https://d.test/", Title: "t", Citation: &normalized.Citation{Source: "wages", SourceURL: "https://d.test/", AccessStatus: normalized.AccessDenied}}
	deltas := []normalized.Delta{
		{Kind: normalized.DeltaText, Text: "Let me "}, {Kind: normalized.DeltaText, Text: "look."},
		{Kind: normalized.DeltaToolCallStart, Part: &start}, {Kind: normalized.DeltaToolCallEnd, Part: &end},
		{Kind: normalized.DeltaText, Text: "One"}, {Kind: normalized.DeltaText, Text: "."}, {Kind: normalized.DeltaPartBegin, Part: &denied},
	}
	for _, setting := range []string{agents.ShowToolsNone, agents.ShowToolsNames, agents.ShowToolsFull} {
		t.Run(setting, func(t *testing.T) {
			s := &showing{setting: setting, limits: normalized.DefaultLimits()}
			all, shown := normalized.NewFold(normalized.Limits{}), normalized.NewFold(normalized.Limits{})
			for _, delta := range deltas {
				if err := all.Add(delta); err != nil {
					t.Fatal(err)
				}
				if readable, is := s.delta(delta); is {
					if err := shown.Add(readable); err != nil {
						t.Fatal(err)
					}
				}
			}
			whole, err := all.Response()
			if err != nil {
				t.Fatal(err)
			}
			whole.Clean()
			got, err := shown.Response()
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(kindsOf(s.response(whole).Parts), kindsOf(got.Parts)); difference != "" {
				t.Error(difference)
			}
		})
	}
	s := &showing{setting: agents.ShowToolsNone, limits: normalized.DefaultLimits()}
	replaced, _ := s.delta(normalized.Delta{Kind: normalized.DeltaResponse, Response: &normalized.Response{Parts: []normalized.Part{end, normalized.Text("x")}}})
	if len(replaced.Response.Parts) != 1 {
		t.Errorf("the whole answer is %+v", replaced.Response.Parts)
	}
}
