package llm

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"inbox/internal/fault"
)

// said is an assistant turn in a form that tests compare.
type said struct {
	Text  string
	Calls []saidCall
	Usage Usage
	Stop  string
}

type saidCall struct{ ID, Name, Arguments string }

func (r *reply) said() said {
	out := said{Text: r.text.String(), Usage: r.usage, Stop: r.stop}
	for i := range r.calls {
		out.Calls = append(out.Calls, saidCall{r.calls[i].id, r.calls[i].name, r.calls[i].arguments.String()})
	}
	return out
}

var (
	wantHello = said{Text: `Grüße, *Welt* – "ok"`, Usage: Usage{Input: 19, Output: 10, CacheRead: 4}, Stop: StopEnd}
	wantCalls = said{
		Calls: []saidCall{{"call_a", "find", `{"q":"café"}`}, {"call_b", "read", ""}},
		Usage: Usage{Input: 30, Output: 12}, Stop: StopToolCalls,
	}
	wantCallsEmpty = said{
		Calls: []saidCall{{"call_a", "find", `{"q":"café"}`}, {"call_b", "read", "{}"}},
		Usage: Usage{Input: 30, Output: 12}, Stop: StopToolCalls,
	}
)

var recordings = map[string]struct {
	api, body string
	want      said
}{
	"openai text":            {APIOpenAI, openAIHello, wantHello},
	"openai calls":           {APIOpenAI, openAICalls, wantCallsEmpty},
	"openai whole text":      {APIOpenAI, openAIWhole, wantHello},
	"openai whole calls":     {APIOpenAI, openAIWholeCalls, wantCallsEmpty},
	"anthropic text":         {APIAnthropic, anthropicHello, wantHello},
	"anthropic calls":        {APIAnthropic, anthropicCalls, wantCalls},
	"anthropic whole text":   {APIAnthropic, anthropicWhole, wantHello},
	"anthropic whole calls":  {APIAnthropic, anthropicWholeCalls, wantCalls},
	"openai carriage return": {APIOpenAI, strings.ReplaceAll(openAIHello, "\n", "\r\n"), wantHello},
	"openai lone return":     {APIOpenAI, strings.ReplaceAll(openAIHello, "\n", "\r"), wantHello},
	"openai without [DONE]":  {APIOpenAI, strings.Replace(openAICalls, "data: [DONE]\n\n", "", 1), wantCallsEmpty},
	"openai with comments":   {APIOpenAI, ": wait\n\n" + strings.ReplaceAll(openAIHello, "\n\n", "\n\n: still here\n\n"), wantHello},
	"openai empty data":      {APIOpenAI, "data:\n\n:\ndata: \n\n" + strings.ReplaceAll(openAIHello, "\n\n", "\n\ndata:\n\n"), wantHello},
	"openai no reason":       {APIOpenAI, strings.Replace(openAIHello, `"finish_reason":"stop"`, `"finish_reason":null`, 1), wantHello},
	"openai calls no reason": {APIOpenAI, strings.Replace(openAICalls, `"finish_reason":"tool_calls"`, `"finish_reason":""`, 1), wantCallsEmpty},
	"openai whole no reason": {APIOpenAI, strings.Replace(openAIWhole, `"finish_reason":"stop"`, `"finish_reason":null`, 1), wantHello},
	"anthropic empty data":   {APIAnthropic, strings.ReplaceAll(anthropicHello, "\n\n", "\n\ndata:\n\n"), wantHello},
	"openai byte order mark": {APIOpenAI, "\ufeff" + openAIHello, wantHello},
	"anthropic compact":      {APIAnthropic, strings.ReplaceAll(anthropicHello, ": ", ":"), wantHello},
}

func codecOf(api string) codec {
	if api == APIOpenAI {
		return &openAIAnswer{}
	}
	return &anthropicAnswer{}
}

// read runs a codec over bytes that come as the reader likes.
func read(api string, source io.Reader, whole bool) (said, error) {
	collected := &reply{}
	var err error
	if whole {
		data, _ := io.ReadAll(source)
		err = codecOf(api).document(data, collected.add)
	} else {
		err = codecOf(api).stream(newEventReader(source), collected.add)
	}
	return collected.said(), err
}

// pieces reads a text as two reads, cut at a place.
func pieces(body string, at int) io.Reader {
	return io.MultiReader(strings.NewReader(body[:at]), strings.NewReader(body[at:]))
}

func TestStreamsSplitAtEveryByte(t *testing.T) {
	for name, recording := range recordings {
		t.Run(name, func(t *testing.T) {
			whole := strings.HasPrefix(recording.body, "{")
			for at := range len(recording.body) + 1 {
				got, err := read(recording.api, pieces(recording.body, at), whole)
				if err != nil {
					t.Fatalf("cut at %d: %v", at, err)
				}
				if diff := cmp.Diff(recording.want, got); diff != "" {
					t.Fatalf("cut at %d: %s", at, diff)
				}
			}
			got, err := read(recording.api, iotest.OneByteReader(strings.NewReader(recording.body)), whole)
			if diff := cmp.Diff(recording.want, got); diff != "" || err != nil {
				t.Fatalf("byte by byte: %v %s", err, diff)
			}
		})
	}
}

func TestStreamsOverHTTPByteByByte(t *testing.T) {
	for name, recording := range recordings {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, recorded{body: recording.body, chunk: 1})
			collected := &reply{}
			for delta, err := range server.connect(t, recording.api).Stream(t.Context(), Request{Model: "m"}) {
				if err != nil {
					t.Fatal(err)
				}
				if err := collected.add(delta); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(recording.want, collected.said()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A stream that ends anywhere before its end is an error, never a short answer.
func TestCutStreamsAreErrors(t *testing.T) {
	for _, recording := range []struct{ api, body, complete string }{
		{APIOpenAI, openAIHello, `"finish_reason":"stop"}]}`},
		{APIOpenAI, openAICalls, `"finish_reason":"tool_calls"}]}`},
		{APIAnthropic, anthropicHello, `data: {"type":"message_stop"}`},
		{APIAnthropic, anthropicCalls, `data: {"type":"message_stop"}`},
	} {
		enough := strings.Index(recording.body, recording.complete) + len(recording.complete)
		for at := range enough {
			if got, err := read(recording.api, strings.NewReader(recording.body[:at]), false); err == nil {
				t.Fatalf("%s cut at %d of %d is %+v without error", recording.api, at, enough, got)
			}
		}
	}
}

func TestToolCallsOfOddServers(t *testing.T) {
	want := []saidCall{{"a", "find", `{"q":1}`}, {"b", "find", `{"q":2}`}}
	finish := `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for name, chunks := range map[string][]string{
		"index 0 for all":    {`{"index":0,"id":"a","function":{"name":"find","arguments":"{\"q\":1}"}}`, `{"index":0,"id":"b","function":{"name":"find","arguments":"{\"q\":2}"}}`},
		"no index":           {`{"id":"a","function":{"name":"find","arguments":"{\"q\":1}"}},{"id":"b","function":{"name":"find","arguments":"{\"q\":2}"}}`},
		"no index, pieces":   {`{"id":"a","function":{"name":"find"}}`, `{"function":{"arguments":"{\"q\":"}}`, `{"function":{"arguments":"1}"}}`, `{"id":"b","function":{"name":"find","arguments":"{\"q\":2}"}}`},
		"arguments as value": {`{"index":0,"id":"a","function":{"name":"find","arguments":{"q":1}}}`, `{"index":1,"id":"b","function":{"name":"find","arguments":{"q":2}}}`},
		"id repeated":        {`{"index":0,"id":"a","function":{"name":"find","arguments":"{\"q\":"}}`, `{"index":0,"id":"a","function":{"name":"find","arguments":"1}"}}`, `{"index":1,"id":"b","function":{"name":"find","arguments":"{\"q\":2}"}}`},
		"interleaved":        {`{"index":0,"id":"a","function":{"name":"find"}},{"index":1,"id":"b","function":{"name":"find"}}`, `{"index":1,"function":{"arguments":"{\"q\":2}"}}`, `{"index":0,"function":{"arguments":"{\"q\":1}"}}`},
		"one-based":          {`{"index":1,"id":"a","function":{"name":"find","arguments":"{\"q\":1}"}}`, `{"index":2,"id":"b","function":{"name":"find","arguments":"{\"q\":2}"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var body strings.Builder
			for _, chunk := range chunks {
				body.WriteString(`data: {"choices":[{"delta":{"tool_calls":[` + chunk + `]}}]}` + "\n\n")
			}
			got, err := read(APIOpenAI, strings.NewReader(body.String()+finish), false)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Calls); diff != "" || got.Stop != StopToolCalls {
				t.Errorf("stop %q %s", got.Stop, diff)
			}
		})
	}
}

func TestRefusedContentAndUnknownWords(t *testing.T) {
	got, err := read(APIOpenAI, strings.NewReader(`data: {"choices":[{"delta":{"refusal":"I can't."},"finish_reason":"stop"}]}`+"\n\n"), false)
	if err != nil || got.Stop != StopRefusal || got.Text != "I can't." {
		t.Errorf("refusal: %+v %v", got, err)
	}
	got, err = read(APIAnthropic, strings.NewReader(`{"type":"message","content":[],"stop_reason":"something_new"}`), true)
	if err != nil || got.Stop != "something_new" {
		t.Errorf("unknown stop: %+v %v", got, err)
	}
	got, err = read(APIOpenAI, strings.NewReader(`{"choices":[{"message":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"hi"}]},"finish_reason":"length"}]}`), true)
	if err != nil || got.Text != "hi" || got.Stop != StopLength {
		t.Errorf("parts: %+v %v", got, err)
	}
}

// TestFormsUnderOtherTypes: an answer is told by its bytes where its type says nothing.
func TestFormsUnderOtherTypes(t *testing.T) {
	for name, c := range map[string]struct {
		contentType, body string
		want              said
	}{
		"stream as text":      {"text/plain", openAIHello, wantHello},
		"stream as bytes":     {"application/octet-stream", "\n: wait\n\n" + openAIHello, wantHello},
		"document as text":    {"text/plain; charset=utf-8", openAIWhole, wantHello},
		"document with mark":  {"application/json", "\ufeff" + openAIWhole, wantHello},
		"document of another": {"application/vnd.api+json", " \n" + openAIWhole, wantHello},
		"page":                {"text/html", "<!doctype html><p>data: {}", said{}},
		"words":               {"text/plain", "upstream busy", said{}},
		"nothing":             {"text/plain", "", said{}},
	} {
		t.Run(name, func(t *testing.T) {
			response := &http.Response{Header: http.Header{"Content-Type": {c.contentType}}}
			collected := &reply{}
			err := (&endpoint{}).read(response, strings.NewReader(c.body), codecOf(APIOpenAI), collected.add)
			if diff := cmp.Diff(c.want, collected.said()); diff != "" || (err == nil) != (c.want.Text != "") {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

// TestEndsWithoutAnything: an end without a reason counts only where something was said before it.
func TestEndsWithoutAnything(t *testing.T) {
	for name, body := range map[string]string{
		"nothing": "data: [DONE]\n\n",
		"role":    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\ndata: [DONE]\n\n",
		"cut":     "data: {\"choices\":[{\"delta\":{\"content\":\"so far\"}}]}\n\n",
	} {
		if got, err := read(APIOpenAI, strings.NewReader(body), false); !errors.Is(err, errStreamCut) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("data: "), &endlessReader{})
	for _, api := range []string{APIOpenAI, APIAnthropic} {
		if _, err := read(api, endless, false); !errors.Is(err, errEventTooLarge) {
			t.Errorf("%s: %v", api, err)
		}
	}
}

type endlessReader struct{}

func (*endlessReader) Read(into []byte) (int, error) {
	return copy(into, bytes.Repeat([]byte("a"), len(into))), nil
}

func TestRepliesAreBounded(t *testing.T) {
	collected := &reply{}
	for range maxTextBytes/1024 + 2 {
		if err := collected.add(Delta{Kind: DeltaText, Text: strings.Repeat("a", 1024)}); err != nil {
			t.Fatal(err)
		}
	}
	if text := collected.content(); len(text) > 1<<20 || !strings.HasSuffix(text, "aa\n\n(1280 more bytes are not shown.)") {
		t.Errorf("%d bytes end with %q", len(text), text[len(text)-50:])
	}
	for _, bad := range []Delta{{Kind: DeltaToolCall, Index: 1}, {Kind: DeltaToolCall, Index: -1}, {Kind: DeltaArguments, Index: 0}} {
		if (&reply{}).add(bad) == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestErrorsInsideStreams(t *testing.T) {
	for name, c := range map[string]struct {
		api, body string
		repeat    bool
	}{
		"anthropic overloaded": {APIAnthropic, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", true},
		"anthropic invalid":    {APIAnthropic, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}\n\n", false},
		"openai server error":  {APIOpenAI, "data: {\"error\":{\"type\":\"server_error\",\"message\":\"oops\"}}\n\n", true},
		"openai code":          {APIOpenAI, "data: {\"error\":{\"code\":502,\"message\":\"upstream\"}}\n\n", true},
		"openai text":          {APIOpenAI, "data: {\"error\":\"context too long\"}\n\n", false},
		"not json":             {APIOpenAI, "data: <html>\n\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, recorded{body: c.body})
			var failed error
			for _, err := range server.connect(t, c.api).Stream(t.Context(), Request{Model: "m"}) {
				failed = err
			}
			if carried := fault.Of(failed); failed == nil || carried.Permanent == c.repeat {
				t.Errorf("the error is %v", failed)
			}
		})
	}
}

func FuzzOpenAIStream(f *testing.F) { fuzzStream(f, APIOpenAI, openAIHello, openAICalls) }

func FuzzAnthropicStream(f *testing.F) { fuzzStream(f, APIAnthropic, anthropicHello, anthropicCalls) }

// fuzzStream checks that nothing panics, that where the bytes are cut changes nothing, and that an answer without error
// has a reason to stop.
func fuzzStream(f *testing.F, api string, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		whole, err := read(api, bytes.NewReader(body), false)
		split, splitErr := read(api, iotest.OneByteReader(bytes.NewReader(body)), false)
		for _, made := range []*said{&whole, &split} { // ids that we make differ
			for i := range made.Calls {
				if strings.HasPrefix(made.Calls[i].ID, "call_") {
					made.Calls[i].ID = "call_"
				}
			}
		}
		if (err == nil) != (splitErr == nil) || !cmp.Equal(whole, split) {
			t.Errorf("whole %v %+v, split %v %+v", err, whole, splitErr, split)
		}
		if err == nil && whole.Stop == "" {
			t.Errorf("an answer without a reason to stop: %+v", whole)
		}
		_ = codecOf(api).document(body, (&reply{}).add)
	})
}
