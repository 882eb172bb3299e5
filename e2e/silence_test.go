package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/httpserver/httpservertest"
)

// pausingModel says one word, and the rest once it is released.
type pausingModel struct {
	asked    atomic.Int64
	released chan struct{}
}

func (m *pausingModel) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	m.asked.Add(1)
	writer.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(writer, chunkOf("Well"))
	_ = http.NewResponseController(writer).Flush()
	select {
	case <-m.released:
	case <-request.Context().Done():
		return
	}
	_, _ = io.WriteString(writer, chunkOf(", done.")+endOfModel)
}

// twoComments reads a stream to its end. The first channel is closed once two comments came, which is after half a minute of silence.
func twoComments(t *testing.T, address, token, body string) (silent <-chan struct{}, whole <-chan string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "text/event-stream", "A2A-Version": "1.0", "Authorization": "Bearer " + token,
	} {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		t.Fatalf("%s: %s %s", address, response.Status, said)
	}
	two, all := make(chan struct{}), make(chan string, 1)
	go func() {
		defer func() { _ = response.Body.Close() }()
		var read strings.Builder
		comments, lines := 0, bufio.NewReader(response.Body)
		for {
			line, err := lines.ReadString('\n')
			read.WriteString(line)
			if strings.HasPrefix(line, ":") {
				if comments++; comments == 2 {
					close(two)
				}
			}
			if err != nil {
				all <- read.String()
				return
			}
		}
	}()
	return two, all
}

// TestSilenceForClients: a comment that keeps a silent stream open was an event without data for the decoders of Python. OpenAI's SDK, the
// A2A SDK and the decoders of four languages read each stream of an answer that pauses for half a minute.
func TestSilenceForClients(t *testing.T) {
	t.Parallel()
	model := &pausingModel{released: make(chan struct{})}
	provider := httptest.NewServer(model)
	t.Cleanup(provider.Close)
	s := start(t, instance.Settings{Agents: modelAgent("slow", provider.URL), More: "[chat]\n"})
	token, err := s.Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	key := lastLine(s.inbox("tokens", "create", "app"))

	_, said := node(t, "streams/silence.mjs", s.URL()+"/v1", key, "slow")
	client := newA2AClient(t, s.URL()+"/a2a/slow", token)
	_, ended := client.watch("stream", map[string]any{"message": map[string]any{
		"messageId": "sdk", "role": "ROLE_USER", "parts": []any{map[string]any{"text": "hi"}},
	}})

	type stream struct {
		silent <-chan struct{}
		whole  <-chan string
	}
	streams := map[string]stream{}
	for name, ask := range map[string]struct{ token, path, body string }{
		"A2A": {token, "/a2a/slow",
			`{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`},
		"A2A over REST": {token, "/a2a/slow/rest/message:stream", `{"message":{"messageId":"m2","role":"ROLE_USER","parts":[{"text":"hi"}]}}`},
		"bridge": {token, "/v1/agent/slow",
			`{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"id":"r1","sessionId":"s1","message":{"parts":[{"type":"text","text":"hi"}]}}}`},
		"chat":   {token, "/v1/chat", `{"agent":"slow","message":"hi"}`},
		"OpenAI": {key, "/v1/chat/completions", `{"model":"slow","stream":true,"messages":[{"role":"user","content":"hi"}]}`},
	} {
		silent, whole := twoComments(t, s.URL()+ask.path, ask.token, ask.body)
		streams[name] = stream{silent, whole}
	}

	for name, one := range streams {
		select {
		case <-one.silent:
		case <-time.After(2 * patience): // the second one comes after 30 s
			t.Fatalf("%s: no two comments within %s of silence", name, 2*patience)
		}
	}
	eventually(t, "the SDKs have asked", func() bool { return model.asked.Load() == int64(len(streams))+2 })
	close(model.released)

	for name, one := range streams {
		var text string
		select {
		case text = <-one.whole:
		case <-time.After(patience):
			t.Fatalf("%s: the stream did not end within %s", name, patience)
		}
		if !strings.Contains(text, "done.") {
			t.Errorf("%s: the stream lacks the end of the answer:\n%s", name, text)
		}
		httpservertest.Check(t, text, len(httpservertest.Standard(text)))

		input, output := node(t, "streams/decode.mjs")
		if _, err := io.WriteString(input, text); err != nil {
			t.Fatal(err)
		}
		_ = input.Close()
		var read struct{ Data, Errors []string }
		readJSON(t, output, &read)
		if len(read.Errors) > 0 || len(read.Data) != len(httpservertest.Standard(text)) {
			t.Errorf("%s: eventsource-parser reads %d events, errors %q", name, len(read.Data), read.Errors)
		}
		for _, data := range read.Data {
			if data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Errorf("%s: eventsource-parser reads %q, which is not JSON", name, data)
			}
		}
	}

	var seen struct{ Text, Finish string }
	readJSON(t, said, &seen)
	if seen.Text != "Well, done." || seen.Finish != "stop" {
		t.Errorf("OpenAI's SDK reads %+v", seen)
	}
	select {
	case answer := <-ended:
		if answer.Error != nil || !strings.Contains(string(answer.Result), "done.") {
			t.Errorf("the A2A SDK reads %s, error %+v", answer.Result, answer.Error)
		}
	case <-time.After(patience):
		t.Errorf("the A2A SDK did not see the end of its stream within %s", patience)
	}
}
