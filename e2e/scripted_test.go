package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/normalized"
	"inbox/policypart"
)

// scripted is a webhook agent whose answers the test writes. It keeps what it was asked.
type scripted struct {
	URL    string
	answer func(message normalized.Message) normalized.Response

	mu    sync.Mutex
	asked []normalized.Message
}

func startScripted(t *testing.T, answer func(message normalized.Message) normalized.Response) *scripted {
	t.Helper()
	agent := &scripted{answer: answer}
	server := httptest.NewServer(agent)
	t.Cleanup(server.Close)
	agent.URL = server.URL
	return agent
}

func (s *scripted) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	var body struct {
		Message normalized.Message `json:"message"`
	}
	if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, body.Message)
	s.mu.Unlock()
	encoded, err := json.Marshal(s.answer(body.Message))
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	_, _ = writer.Write(encoded)
}

// questions returns what the agent was asked so far.
func (s *scripted) questions() []normalized.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]normalized.Message(nil), s.asked...)
}

// last returns the newest question.
func (s *scripted) last(t *testing.T) normalized.Message {
	t.Helper()
	asked := s.questions()
	if len(asked) == 0 {
		t.Fatal("the agent was asked nothing")
	}
	return asked[len(asked)-1]
}

// table writes the agent's configuration; more are lines of its table.
func (s *scripted) table(name, more string) string {
	return fmt.Sprintf("[[agents]]\nname = %q\nkind = \"webhook\"\n%s\n[agents.webhook]\nurl = %q\nsecret = %q\n", name, more, s.URL, webhookSecret)
}

func say(text string) normalized.Response {
	return normalized.Response{Parts: []normalized.Part{normalized.Text(text)}}
}

func textOf(parts []normalized.Part) string {
	var texts []string
	for _, part := range parts {
		if part.Kind == normalized.PartText {
			texts = append(texts, part.Content)
		}
	}
	return strings.Join(texts, "\n")
}

func demanding(part policypart.Part) normalized.Response {
	return normalized.Response{
		Status: policypart.ResponseStatus(part.Kind),
		Parts:  []normalized.Part{{Kind: normalized.PartPolicy, Policy: &part}},
	}
}

// asksForConsent demands consent first and tells afterwards what it was granted.
func asksForConsent(message normalized.Message) normalized.Response {
	if resolution := message.PolicyResolution; resolution != nil {
		return say("The table is booked, as you " + resolution.Outcome + ".")
	}
	return demanding(policypart.Part{
		Kind: policypart.ConsentRequired, Title: "May I book a table?", ActionLabel: "Answer here",
		Message: "I want to book a table for two in your name.", Scopes: []string{"calendar.write"},
		Data: map[string]json.RawMessage{"dev.mentionable.state": json.RawMessage(`"table-7"`), "com.example.table": json.RawMessage(`{"seats":2}`)},
	})
}

var policyLink = regexp.MustCompile(`https?://[^\s"'<>]+/policy/[A-Za-z0-9_-]+`)

// findLink returns the address of a demand in a text.
func findLink(t *testing.T, text string) string {
	t.Helper()
	link := policyLink.FindString(text)
	if link == "" {
		t.Fatalf("there is no policy link in:\n%s", text)
	}
	return link
}

// page does one request to a policy page and returns status and body.
func page(t *testing.T, method, address string, form url.Values) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// scan looks at a demand as mail scanners do; nothing may come of it.
func scan(t *testing.T, link string) {
	t.Helper()
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodGet} {
		if status, body := page(t, method, link, nil); status != http.StatusOK {
			t.Errorf("%s of the demand answered %d:\n%s", method, status, body)
		}
	}
}

// grant presses the button.
func grant(t *testing.T, link string) string {
	t.Helper()
	status, body := page(t, http.MethodPost, link, url.Values{"decision": {"grant"}})
	if status >= http.StatusBadRequest {
		t.Fatalf("granting answered %d:\n%s", status, body)
	}
	return body
}

// states returns the states of all turns, oldest first.
func states(t *testing.T, s *instance.Instance) []string {
	t.Helper()
	found, err := s.Column(t.Context(), "SELECT state FROM turns ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// auditCodes returns the codes on record, oldest first.
func auditCodes(t *testing.T, s *instance.Instance) []string {
	t.Helper()
	found, err := s.Column(t.Context(), "SELECT code FROM audit ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	return found
}
