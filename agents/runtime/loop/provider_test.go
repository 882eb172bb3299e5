package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

func TestToolCallsInText(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"xml": {
			"Sure.\n" + `<function_calls><invoke name="wiki/read"><parameter name="title">A &amp; <b>B</b>&copy=1</parameter></invoke>` +
				`<invoke name="bad name!"></invoke><invoke name='x'></invoke></function_calls>`,
			`[{"id":"xml-tool-call-1","name":"wiki/read","parameters":{"title":"A & B&copy=1"}},` +
				`{"id":"xml-tool-call-3","name":"x","parameters":{}}]`,
		},
		"xml without its frame": {`<invoke name="a"></invoke>`, `[]`},
		"tag": {
			`<tool_call>{"function":{"name":"a","arguments":"{\"x\":1}"},"id":"own"}</tool_call>`,
			`[{"id":"own","name":"a","parameters":{"x":1}}]`,
		},
		"tag with entities": {`<tool_call>{&quot;name&quot;:&quot;a&quot;}</tool_call>`, `[{"id":"json-tool-call-1-1","name":"a","parameters":{}}]`},
		"entities in JSON":  {`<tool_call>{"name":"a","parameters":{"q":"say &quot;hi&quot;"}}</tool_call>`, `[{"id":"json-tool-call-1-1","name":"a","parameters":{"q":"say &quot;hi&quot;"}}]`},
		"fence without language": {
			"look\n```\n{\"name\": \"a\", \"arguments\": {\"x\": {\"y\": []}}}\n```\n```json\n{\"name\":\"b\"}\n```",
			`[{"id":"json-tool-call-1-1","name":"a","parameters":{"x":{"y":[]}}},{"id":"json-tool-call-2-1","name":"b","parameters":{}}]`,
		},
		"fence of something else": {"```json\n{\"a\": 1}\n```", `[]`},
		"named tag":               {`<tool_call name="a">{"x": "y"}</tool_call>`, `[{"id":"tag-tool-call-1","name":"a","parameters":{"x":"y"}}]`},
		"named tag without JSON":  {`<tool_call name='a'>hm</tool_call>`, `[{"id":"tag-tool-call-1","name":"a","parameters":{}}]`},
		"line":                    {` wiki/read title="A B" n='2' x=y `, `[{"id":"text-tool-call-1","name":"wiki/read","parameters":{"n":"2","title":"A B","x":"y"}}]`},
		"prose":                   {"Well a=b", `[{"id":"text-tool-call-1","name":"Well","parameters":{"a":"b"}}]`},
		"no pair":                 {"hello world", `[]`},
		"empty":                   {"", `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			got := value.EncodeText(loop.ExtractToolCalls(test.text, test.text))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func FuzzExtractToolCalls(f *testing.F) {
	f.Add(`<function_calls><invoke name="a"><parameter name="b">c</parameter></invoke></function_calls>`)
	f.Add("```json\n{\"tool_calls\":[{\"name\":\"a\",\"parameters\":{}}]}\n```")
	f.Add(`<tool_call name="a">{"x":1}</tool_call><tool_call>{"name":"b"}</tool_call>`)
	f.Add(`run x="1" y='2'`)
	f.Fuzz(func(t *testing.T, text string) {
		calls := loop.ExtractToolCalls(text)
		turn, err := loop.NormalizeProviderTurn(map[string]any{"tool_calls": calls})
		if err != nil {
			t.Fatalf("extracted calls are not valid: %v", err)
		}
		if !value.Equal(turn["tool_calls"], calls) {
			t.Fatalf("%v became %v", calls, turn["tool_calls"])
		}
	})
}

func FuzzProviderTurn(f *testing.F) {
	f.Add([]byte(`{"content":"x","tool_calls":[{"name":"a"}],"usage":{"n":1},"structured_output":{"parsed":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		given, err := value.Decode(data, value.Limits{})
		raw, is := given.(map[string]any)
		if err != nil || !is {
			return
		}
		once, err := loop.NormalizeProviderTurn(raw)
		if err != nil {
			return
		}
		twice, err := loop.NormalizeProviderTurn(once)
		if err != nil || !value.Equal(once, twice) {
			t.Fatalf("%v became %v (%v)", once, twice, err)
		}
	})
}

func TestProviderTurnErrors(t *testing.T) {
	for path, raw := range map[string]string{
		"usage":                         `{"usage":5}`,
		"message":                       `{"message":"x"}`,
		"tool_calls[1]":                 `{"tool_calls":[{"name":"a"},"x"]}`,
		"tool_calls[0].name":            `{"tool_calls":[{"name":""}]}`,
		"tool_calls[0].parameters":      `{"tool_calls":[{"name":"a","parameters":"x"}]}`,
		"failure":                       `{"failure":"x"}`,
		"failure.message":               `{"failure":{"type":"t"}}`,
		"structured_output":             `{"structured_output":null}`,
		"structured_output.diagnostics": `{"structured_output":{"parsed":1,"diagnostics":"x"}}`,
	} {
		given, err := value.Decode([]byte(raw), value.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = loop.NormalizeProviderTurn(value.Assoc(given))
		if wrong, is := errors.AsType[*loop.Error](err); !is || wrong.Path != path {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestProviderWithoutTools(t *testing.T) {
	var seen loop.ProviderRequest
	result, err := loop.Run(t.Context(), []any{map[string]any{"role": "user", "content": "Hi"}}, nil, loop.Options{
		Context: map[string]any{"model_id": "m", "temperature": 1, "runtime_id": "r"}, Model: map[string]any{"temperature": 0},
		RunID: "run", SessionID: "s", Metadata: map[string]any{"k": 1},
		Provider: loop.ProviderAdapterFunc(func(_ context.Context, request loop.ProviderRequest) (any, error) {
			seen = request
			return map[string]any{
				"content": "Hello", "usage": map[string]any{"total_tokens": 3}, "request_metadata": map[string]any{"id": "q"},
				"continuation_messages": []any{map[string]any{"role": "user", "content": "more"}},
			}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"model_id": "m", "temperature": 0}, seen.Model); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(map[string]any{"turns": map[string]any{"current": 0, "limit": 1}}, seen.Budgets); diff != "" {
		t.Fatal(diff)
	}
	if seen.Runtime["runtime_id"] != "r" || seen.RunID != "run" || seen.SessionID != "s" || len(seen.Messages) != 1 {
		t.Fatalf("request %+v", seen)
	}
	if result["final_content"] != "Hello" || len(transcript(t, result)) != 3 || recorded(result)[0] != "continuation_message_added" {
		t.Fatalf("result %v", result)
	}
}

func TestProviderWithTools(t *testing.T) {
	turns := 0
	r := newRig()
	r.options.Provider = loop.ProviderAdapterFunc(func(_ context.Context, request loop.ProviderRequest) (any, error) {
		turns++
		if request.Tools.Len() != 3 {
			t.Errorf("%d tools", request.Tools.Len())
		}
		if turns == 1 {
			return map[string]any{"message": map[string]any{"role": "assistant", "content": `a/read title="x"`}}, nil
		}
		return map[string]any{"content": "Done"}, nil
	})
	var parameters map[string]any
	r.execute = func(_ context.Context, call tool.Call) (map[string]any, error) {
		parameters = call.Parameters
		return nil, nil
	}
	result := r.run(t)
	if turns != 2 || r.ran != 0 || parameters["title"] != "x" || result["final_content"] != "Done" {
		t.Fatalf("turns %d, parameters %v", turns, parameters)
	}
	noOrphans(t, result)
}

func TestProviderNonsenseFailsTheRun(t *testing.T) {
	for _, given := range []any{nil, "x", map[string]any{"tool_calls": 5}} {
		result, err := loop.Run(t.Context(), nil, nil, loop.Options{
			Provider: loop.ProviderAdapterFunc(func(context.Context, loop.ProviderRequest) (any, error) { return given, nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		if failure := value.Assoc(result["failure"]); failure["code"] != "invalid_agent_provider_turn_result" {
			t.Fatalf("failure %v", failure)
		}
	}
}

func TestStructuredOutput(t *testing.T) {
	schema := `{"schema":{"type":"object","required":["n"],"additionalProperties":false,"properties":{
		"n":{"type":["integer","null"]},"kind":{"enum":["a",[],1]},"list":{"type":"array","items":{"type":"string"}}}}%s}`
	for name, test := range map[string]struct {
		text string
		want string // failure type and code, or the parsed value
	}{
		"fits":       {`{"n": 1}`, `{"n":1}`},
		"null":       {`{"n": null, "list": []}`, `{"list":[],"n":null}`},
		"no JSON":    {`n = 1`, "structured_output_invalid_json "},
		"two values": {`{"n":1} {}`, "structured_output_invalid_json "},
		"list":       {`[]`, "structured_output_schema_mismatch type_mismatch"},
		"missing":    {`{}`, "structured_output_schema_mismatch required_property_missing"},
		"float":      {`{"n": 1.0}`, "structured_output_schema_mismatch type_mismatch"},
		"more":       {`{"n": 1, "x": 2}`, "structured_output_schema_mismatch additional_property_forbidden"},
		"enum":       {`{"n": 1, "kind": {}}`, "structured_output_schema_mismatch enum_mismatch"},
		"items":      {`{"n": 1, "list": ["a", 2]}`, "structured_output_schema_mismatch type_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, err := value.Decode([]byte(replaceVerb(schema, "")), value.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			result, err := loop.Run(t.Context(), nil, nil, loop.Options{
				StructuredOutput: wanted,
				Provider: loop.ProviderAdapterFunc(func(_ context.Context, request loop.ProviderRequest) (any, error) {
					if request.StructuredOutput == nil {
						t.Error("the provider does not know")
					}
					return map[string]any{"content": test.text}, nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			var got string
			if failure := value.Assoc(result["failure"]); len(failure) > 0 {
				list, _ := value.List(result["provider_diagnostics"])
				code := value.Assoc(value.Assoc(list[0])["structured_output"])["code"]
				got = value.Text(failure["type"]) + " " + value.Text(code)
			} else {
				got = value.EncodeText(result["structured_output"])
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func replaceVerb(format, with string) string {
	at := len(format) - len("%s}")
	return format[:at] + with + "}"
}

func TestStructuredOutputRequests(t *testing.T) {
	for raw, problem := range map[string]string{
		`5`:                          "structured_output must be an array",
		`{}`:                         "schema must be an array",
		`{"schema":{},"name":5}`:     "name must be a string or null",
		`{"schema":{},"name":"1a"}`:  "name must match /^[A-Za-z][A-Za-z0-9_-]{0,63}$/",
		`{"schema":{},"name":" "}`:   "name must match /^[A-Za-z][A-Za-z0-9_-]{0,63}$/",
		`{"schema":{},"strict":1}`:   "strict must be a boolean",
		`{"schema":{},"format":"x"}`: "format must be json_schema",
		`{"schema":{},"format":1}`:   "format must be a string",
	} {
		given, err := value.Decode([]byte(raw), value.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loop.ParseStructuredOutput(given); err == nil || err.Error() != "invalid_agent_structured_output_request: "+problem {
			t.Errorf("%s: %v", raw, err)
		}
	}
	output, err := loop.ParseStructuredOutput(map[string]any{"schema": map[string]any{"type": "null"}, "name": " N ", "strict": false})
	if err != nil || output.Name != "N" || output.Strict {
		t.Fatalf("%+v, %v", output, err)
	}
	read := output.Read(`[1]`) // not strict: any JSON is taken
	if diff := cmp.Diff([]any{json.Number("1")}, value.Assoc(read["structured_output"])["parsed"]); diff != "" {
		t.Fatal(diff)
	}
	r := newRig()
	r.options.StructuredOutput, r.options.Declarations = output, nil
	r.options.OnDelta = func(map[string]any) {}
	if _, err := r.try(t.Context()); err == nil {
		t.Fatal("structured output streams")
	}
}
