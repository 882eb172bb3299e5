package attacks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"inbox/normalized"
)

const agentSecret = "a secret that only the tests know"

// scripted is a webhook agent whose answers the test writes; it returns the lines that configure it.
func scripted(t *testing.T, name, more string, answer func(message normalized.Message) normalized.Response) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		var body struct {
			Message normalized.Message `json:"message"`
		}
		if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(writer).Encode(answer(body.Message))
	}))
	t.Cleanup(server.Close)
	return fmt.Sprintf("[[agents]]\nname = %q\nkind = \"webhook\"\n%s[agents.webhook]\nurl = %q\nsecret = %q\n\n", name, more, server.URL, agentSecret)
}

// parrot says again what it hears, as Markdown: what a model does that is asked to repeat something.
func parrot(message normalized.Message) normalized.Response {
	var said normalized.Response
	for _, part := range message.Parts {
		if part.Kind == normalized.PartText {
			said.Parts = append(said.Parts, normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEMarkdown, Content: part.Content})
		}
	}
	return said
}
