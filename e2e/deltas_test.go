package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// streamed is a program that says the first half of its answer, and the second once the test has seen the first.
func streamed(t *testing.T, goOn <-chan struct{}, first, second string) *httptest.Server {
	t.Helper()
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, first)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
			_, _ = io.WriteString(w, second)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(program.Close)
	return program
}

// TestDeltasOfEveryKindArriveAsTheyCome: a reader has the first half of an answer before the agent has said the second, whatever kind of agent
// it is.
//
//contract:shows channels-26
func TestDeltasOfEveryKindArriveAsTheyCome(t *testing.T) {
	const half, rest = "The first half, ", "and the second."
	goOn := map[string]chan struct{}{}
	for _, kind := range []string{"webhook", "llm", "pull", "remote"} {
		goOn[kind] = make(chan struct{})
	}
	delta := func(text string) string {
		return fmt.Sprintf("event: delta\ndata: {\"kind\":\"text\",\"text\":%q}\n\n", text)
	}
	chunk := func(text string) string {
		return fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", text)
	}
	const end = "event: end\ndata: {}\n\n"
	hook := streamed(t, goOn["webhook"], delta(half), delta(rest)+end)
	far := streamed(t, goOn["remote"], delta(half), delta(rest)+end)
	model := streamed(t, goOn["llm"], chunk(half), chunk(rest)+"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")

	webhook := func(name string, program *httptest.Server) string {
		return fmt.Sprintf("[[agents]]\nname = %q\nkind = \"webhook\"\n[agents.webhook]\nurl = %q\nsecret = %q\n", name, program.URL, webhookSecret)
	}
	other := start(t, instance.Settings{Agents: webhook("far", far)})
	s := start(t, instance.Settings{Agents: webhook("webhook", hook) +
		fmt.Sprintf("[[agents]]\nname = \"llm\"\nkind = \"llm\"\n[agents.llm]\nbase_url = %q\nmodel = \"m\"\n", model.URL+"/v1") +
		fmt.Sprintf("[[agents]]\nname = \"remote\"\nkind = \"remote\"\n[agents.remote]\ncard_url = %q\ntoken = %q\n", other.URL()+"/a2a/far/.well-known/agent-card.json", other.peerToken("near")) +
		"[[agents]]\nname = \"pull\"\nkind = \"pull\"\n",
	})
	token := "Bearer " + s.peerToken("reader")
	program := pullProgram{s.URL() + "/v1/pull/pull/", secretIn(s.inbox("tokens", "create", "--agent", "pull", "--pull", "laptop"))}

	for kind, second := range goOn {
		t.Run(kind, func(t *testing.T) {
			answered := make(chan error, 1)
			if kind == "pull" {
				go func() { answered <- program.answer(t.Context(), half, rest, second) }()
			} else {
				answered <- nil
			}
			lines := s.openLines(t, "/v1/chat", fmt.Sprintf(`{"agent":%q,"message":"go"}`, kind), token, nil)
			var all strings.Builder
			for !strings.Contains(all.String(), strings.TrimSpace(half)) {
				if !lines.Scan() {
					t.Fatalf("the stream ended without the first half:\n%s", all.String())
				}
				all.WriteString(lines.Text() + "\n")
			}
			if strings.Contains(all.String(), rest) {
				t.Errorf("both halves came at once:\n%s", all.String())
			}
			close(second)
			for lines.Scan() {
				all.WriteString(lines.Text() + "\n")
			}
			if !strings.Contains(all.String(), half+rest) {
				t.Errorf("the stream is\n%s", all.String())
			}
			if err := <-answered; err != nil {
				t.Error(err)
			}
		})
	}
}

// pullProgram answers the messages of an agent of kind pull.
type pullProgram struct{ base, token string }

// secretIn is the token that a command printed.
func secretIn(printed string) string {
	for word := range strings.FieldsSeq(printed) {
		if strings.HasPrefix(word, "inbox_") {
			return word
		}
	}
	return ""
}

func (p pullProgram) post(ctx context.Context, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %d %s", path, response.StatusCode, content)
	}
	return content, err
}

// answer takes one message and answers it in two halves.
func (p pullProgram) answer(ctx context.Context, half, rest string, goOn <-chan struct{}) error {
	document, err := p.post(ctx, "take?wait=60s", "")
	if err != nil {
		return err
	}
	var taken struct{ Turn, Lease struct{ ID string } }
	if err := json.Unmarshal(document, &taken); err != nil {
		return fmt.Errorf("took %s: %w", document, err)
	}
	to := func(step string) string { return taken.Turn.ID + "/" + step + "?lease=" + taken.Lease.ID }
	if _, err := p.post(ctx, to("deltas"), fmt.Sprintf("{\"kind\":\"text\",\"text\":%q}\n", half)); err != nil {
		return err
	}
	select {
	case <-goOn:
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := p.post(ctx, to("deltas"), fmt.Sprintf("{\"kind\":\"text\",\"text\":%q}\n", rest)); err != nil {
		return err
	}
	_, err = p.post(ctx, to("answer"), "")
	return err
}
