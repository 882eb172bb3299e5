package llm

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// escaped writes a text as JSON with an escape sequence for each half of a pair.
func escaped(units []uint16) (pieces []string) {
	for _, unit := range units {
		text := string(utf16.Decode([]uint16{unit}))
		encoded, _ := json.Marshal(text)
		piece := strings.Trim(string(encoded), `"`)
		if text == `"` {
			piece = `\"`
		}
		if utf16.IsSurrogate(rune(unit)) {
			piece = `\u` + strings.ToUpper(string("0123456789abcdef"[unit>>12])+string("0123456789abcdef"[unit>>8&15])+string("0123456789abcdef"[unit>>4&15])+string("0123456789abcdef"[unit&15]))
		}
		pieces = append(pieces, piece)
	}
	return pieces
}

// TestTextsCutAnywhereAreWhole: wherever a provider cuts its texts, between two halves of a pair as well, they are the text. A half without its
// other one is U+FFFD.
func TestTextsCutAnywhereAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.SliceOfN(rapid.SampledFrom([]uint16{'a', '\\', '"', 'u', 0xd83d, 0xdc00, 0xde00, 0xd800, 0x20ac}), 0, 12).Draw(t, "units")
		var joint halves
		got, piece := "", ""
		for _, one := range escaped(units) {
			if piece += one; rapid.Bool().Draw(t, "cut") {
				got, piece = got+joined(t, &joint, piece), ""
			}
		}
		got += joined(t, &joint, piece) + joint.rest()
		if want := string(utf16.Decode(units)); got != want {
			t.Fatalf("%q is %q, want %q", escaped(units), got, want)
		}
	})
}

func joined(t *rapid.T, joint *halves, piece string) string {
	var next wireText
	if err := json.Unmarshal([]byte(`"`+piece+`"`), &next); err != nil {
		t.Fatal(err)
	}
	return joint.join(next)
}

// TestPairsAreJoinedAcrossDeltas: in the text and in the arguments of both APIs.
func TestPairsAreJoinedAcrossDeltas(t *testing.T) {
	openAI := func(deltas ...string) string {
		var body strings.Builder
		for _, delta := range deltas {
			body.WriteString(`data: {"choices":[{"index":0,"delta":` + delta + "}]}\n\n")
		}
		return body.String() + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	}
	anthropic := func(block, kind, member string, pieces ...string) string {
		var body strings.Builder
		body.WriteString(`data: {"type":"content_block_start","index":0,"content_block":` + block + "}\n\n")
		for _, piece := range pieces {
			body.WriteString(`data: {"type":"content_block_delta","index":0,"delta":{"type":"` + kind + `","` + member + `":"` + piece + `"}}` + "\n\n")
		}
		body.WriteString(`data: {"type":"content_block_stop","index":0}` + "\n\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\n")
		return body.String() + `data: {"type":"message_stop"}` + "\n\n"
	}
	const call = `{"tool_calls":[{"index":0,"id":"c","function":{"name":"find","arguments":"`
	const more = `{"tool_calls":[{"index":0,"function":{"arguments":"`
	lone := string(utf8.RuneError)
	for name, test := range map[string]struct{ api, body, text, arguments string }{
		"openai":                  {APIOpenAI, openAI(`{"content":"a\ud83d"}`, `{"content":"\ude00b"}`), "a😀b", ""},
		"openai, empty between":   {APIOpenAI, openAI(`{"content":"a\uD83D"}`, `{"content":""}`, `{}`, `{"content":"\uDE00"}`), "a😀", ""},
		"openai, parts":           {APIOpenAI, openAI(`{"content":[{"type":"text","text":"\ud83d"},{"type":"text","text":"\ude00"}]}`), "😀", ""},
		"openai, lone at the end": {APIOpenAI, openAI(`{"content":"a\ud83d"}`), "a" + lone, ""},
		"openai, lone":            {APIOpenAI, openAI(`{"content":"a\ud83d"}`, `{"content":"b"}`, `{"content":"\ude00"}`), "a" + lone + "b" + lone, ""},
		"openai, a backslash":     {APIOpenAI, openAI(`{"content":"a\\ud83d"}`, `{"content":"b"}`), `a\ud83d` + "b", ""},
		"openai, refusal":         {APIOpenAI, openAI(`{"refusal":"\ud83d"}`, `{"refusal":"\ude00"}`), "😀", ""},
		"openai, arguments":       {APIOpenAI, openAI(call+`{\"q\":\"\ud83d"}}]}`, more+`\ude00\"}"}}]}`), "", `{"q":"😀"}`},
		"openai, lone argument":   {APIOpenAI, openAI(call+`{\"q\":\"\ud83d"}}]}`, more+`\"}"}}]}`), "", `{"q":"` + lone + `"}`},
		"openai, escaped twice":   {APIOpenAI, openAI(call+`{\"q\":\"\\ud83d"}}]}`, more+`\\ude00\"}"}}]}`), "", `{"q":"\ud83d\ude00"}`},
		"anthropic":               {APIAnthropic, anthropic(`{"type":"text","text":""}`, "text_delta", "text", `a\ud83d`, `\ude00b`), "a😀b", ""},
		"anthropic, lone":         {APIAnthropic, anthropic(`{"type":"text","text":""}`, "text_delta", "text", `\ude00a`, `\ud83d`), lone + "a" + lone, ""},
		"anthropic, arguments":    {APIAnthropic, anthropic(`{"type":"tool_use","id":"c","name":"find","input":{}}`, "input_json_delta", "partial_json", `{\"q\":\"\ud83d`, `\ude00\"}`), "", `{"q":"😀"}`},
		"anthropic, lone at end":  {APIAnthropic, anthropic(`{"type":"tool_use","id":"c","name":"find","input":{}}`, "input_json_delta", "partial_json", `\ud83d`), "", lone},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(test.api, strings.NewReader(test.body), false)
			if err != nil {
				t.Fatal(err)
			}
			arguments := ""
			if len(got.Calls) > 0 {
				arguments = got.Calls[0].Arguments
			}
			if got.Text != test.text || arguments != test.arguments {
				t.Errorf("got %q and %q, want %q and %q", got.Text, arguments, test.text, test.arguments)
			}
		})
	}
}
