package chat_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/normalized"
)

// dataURL is a data: URL of a content.
func dataURL(mediaType string, content []byte) string {
	return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(content)
}

func textPiece(text string) said { return said{"type": "text", "text": text} }

func picturePiece(address string) said {
	return said{"type": "image_url", "image_url": said{"url": address}}
}

func filePiece(name string, content []byte) said {
	return said{"type": "file", "file": said{"filename": name, "file_data": dataURL("text/csv", content)}}
}

func completionOf(model string, messages ...any) string {
	body, _ := json.Marshal(said{"model": model, "messages": messages})
	return string(body)
}

// blobs are the contents of a server.
func (s *chatServer) blobs() *blob.Files {
	s.Helper()
	opened, err := blob.OpenFiles(filepath.Join(s.Config().DataDir, "blobs"), blob.Options{})
	if err != nil {
		s.Fatal(err)
	}
	return opened
}

// contentOf reads the bytes of a part from the contents of the server.
func (s *chatServer) contentOf(part normalized.Part) string {
	s.Helper()
	if part.BytesRef.Kind == normalized.BytesURL {
		return part.BytesRef.URL
	}
	opened, err := s.blobs().Open(s.Context(), part.BytesRef.Digest)
	if err != nil {
		s.Errorf("%s of %d bytes: %v", part.MIME, part.Size, err)
		return ""
	}
	defer opened.Close()
	content, err := io.ReadAll(opened)
	if err != nil || int64(len(content)) != part.Size {
		s.Errorf("%d bytes of %d: %v", len(content), part.Size, err)
	}
	return string(content)
}

// earlierConversation has files, calls of tools and instructions in every kind of message.
func earlierConversation(large []byte) []any {
	return []any{
		said{"role": "system", "content": "Be kind."},
		said{"role": "user", "content": []any{
			textPiece("Compare this"), picturePiece(dataURL("image/png", []byte("first"))), textPiece("with"), textPiece("that"),
			picturePiece("https://pictures.example/b.png"), filePiece("prices.csv", large),
		}},
		said{"role": "assistant", "content": nil, "function_call": said{"name": "prices", "arguments": `{"of":"plum"}`}},
		said{"role": "function", "name": "prices", "content": "7"},
		said{"role": "assistant", "content": "Seven.", "tool_calls": []any{said{"id": "c0", "type": "function", "function": said{}}}},
		said{"role": "user", "content": []any{
			picturePiece("https://pictures.example/signed.png?key=a.b&to=[x]"), picturePiece("https://pictures.example/9f3a"),
			picturePiece("DATA:image/PNG;charset=x;BASE64,aQ=="), picturePiece("data:;base64,ag=="),
			said{"type": "file", "file": said{"filename": "raw.csv", "file_data": "YTti"}},
		}},
		said{"role": "assistant", "content": nil, "tool_calls": []any{said{"id": "c1", "type": "function", "function": said{"name": "photo", "arguments": `{"of":"pear"}`}}}},
		said{"role": "tool", "tool_call_id": "c1", "content": []any{picturePiece(dataURL("image/png", []byte("pear"))), textPiece("one pear")}},
		said{"role": "assistant", "content": nil, "refusal": "I do not look at pears."},
		said{"role": "user", "content": []any{picturePiece(dataURL("image/png", []byte("alone")))}},
		said{"role": "assistant", "content": []any{textPiece("Nice."), filePiece("answer.csv", []byte("a;b"))}},
		said{"role": "user", "content": "What was the first?"},
	}
}

// TestEarlierFilesReachTheAgent: texts, pictures, files and calls of all earlier messages are in the history of the agent, in order, under
// their role. Their bytes stay while the message waits, whatever is swept meanwhile, and after the server was started again.
func TestEarlierFilesReachTheAgent(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := []string{"INBOX_DATABASE_URL=" + url(t), "INBOX_DATA_DIR=" + filepath.Join(t.TempDir(), "data")}
			large := bytes.Repeat([]byte("pear;3\n"), normalized.MaxInlineBytes/7+1)
			t.Run("accepted", func(t *testing.T) { acceptsEarlierFiles(t, settings, large) })
			t.Run("started again", func(t *testing.T) { runsEarlierFiles(t, settings, large) })
		})
	}
}

// acceptsEarlierFiles has a server accept the conversation, sweeps, and stops it before there is an answer.
func acceptsEarlierFiles(t *testing.T, settings []string, large []byte) {
	server := inboxtest.New(t, "", settings...)
	began := make(chan struct{}, 8)
	waits := agents.Func(func(ctx context.Context, _ agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			began <- struct{}{}
			<-ctx.Done()
			yield(normalized.Delta{}, ctx.Err())
		}
	})
	if err := server.Register(exchange.AgentProfile{Name: "sees", DisplayName: "Sees"}, waits, agents.Settings{Unverified: agents.UnverifiedAnswer}); err != nil {
		t.Fatal(err)
	}
	s := &chatServer{Server: server.Serve()}

	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(completionOf("sees", earlierConversation(large)...)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.Token("app"))
	left := make(chan struct{})
	go func() {
		defer close(left)
		if response, err := inboxtest.Client.Do(request); err == nil {
			_ = response.Body.Close() // there is no answer yet
		}
	}()
	await.Receive(t, began, "the run")
	leave()
	<-left

	if _, err := s.Store().SweepBlobs(t.Context(), s.blobs(), -1); err != nil {
		t.Error(err)
	}
	if _, err := s.Store().SweepOrphans(t.Context(), s.blobs(), -1); err != nil {
		t.Error(err)
	}
	if documents, err := s.Store().State().Count(t.Context(), "pipeline.ancestors"); err != nil || documents > 0 {
		t.Errorf("%d copies of the history, %v", documents, err)
	}
}

// runsEarlierFiles restarts the server on the same data directory.
func runsEarlierFiles(t *testing.T, settings []string, large []byte) {
	server := inboxtest.New(t, "", settings...)
	told := make(chan normalized.Message, 1)
	sees := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			told <- turn.Message
			yield(normalized.Delta{Kind: normalized.DeltaText, Text: "the first"}, nil)
		}
	})
	if err := server.Register(exchange.AgentProfile{Name: "sees", DisplayName: "Sees"}, sees, agents.Settings{Unverified: agents.UnverifiedAnswer}); err != nil {
		t.Fatal(err)
	}
	s := &chatServer{Server: server.Serve()}
	message := await.Receive(t, told, "the run")

	var got []string
	for i := range message.History {
		for _, one := range message.History[i].Messages() {
			proven := len(one.Sender.Identities) > 0
			if proven != (message.History[i].Role == normalized.RoleUser) {
				t.Errorf("a %s is proven: %t", message.History[i].Role, proven)
			}
			line := message.History[i].Role
			for _, part := range one.Parts {
				if part.Kind == normalized.PartText {
					line += " | " + part.Content
					continue
				}
				content := s.contentOf(part)
				if content == string(large) {
					content = "large"
				}
				line += fmt.Sprintf(" | %s %s %s", part.MIME, part.Name, content)
			}
			got = append(got, line)
		}
	}
	want := []string{
		"user | Be kind.",
		"user | Compare this | image/png  first | with\nthat | image/png  https://pictures.example/b.png | text/csv prices.csv large",
		`assistant | [called prices {"of":"plum"}]`, "user | Result of prices: 7", "assistant | Seven. | [called a tool]",
		"user | image/png  https://pictures.example/signed.png?key=a.b&to=[x] | image/*  https://pictures.example/9f3a | image/png  i | image/*  j | text/csv raw.csv a;b",
		`assistant | [called photo {"of":"pear"}]`,
		"user | Result of photo: | image/png  pear | one pear",
		"assistant | I do not look at pears.",
		"user | image/png  alone",
		"assistant | Nice. | text/csv answer.csv a;b",
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
}

// TestEarlierRefusals sends requests that exceed a limit or cannot be read. Each is refused as a whole, with the limit and the member that breaks it. Nothing of
// it is stored.
func TestEarlierRefusals(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("app")
	ask := said{"role": "user", "content": "and now?"}
	before := func(content ...any) []any {
		return []any{said{"role": "user", "content": "one"}, said{"role": "assistant", "content": "two"}, said{"role": "user", "content": content}, ask}
	}
	small := picturePiece(dataURL("image/png", []byte("x")))

	for name, c := range map[string]struct {
		messages    []any
		status      int
		param, says string
	}{
		"too many messages":    {append(slices.Repeat([]any{ask}, exchange.MaxEarlier), ask), 400, "messages", "the limit is 1000"},
		"a broken data URL":    {before(textPiece("look"), picturePiece("data:image/png;base64,???")), 400, "messages[2].content[1]", "base64"},
		"no base64":            {before(picturePiece("data:image/png,abc")), 400, "messages[2].content[0]", "base64"},
		"an unknown type":      {before(said{"type": "video_url", "video_url": said{"url": "https://a.example/v.mp4"}}), 400, "messages[2].content[0]", "text, image_url"},
		"no https":             {before(picturePiece("ftp://a.example/b.png")), 400, "messages[2].content[0]", "https"},
		"an uploaded file":     {before(said{"type": "file", "file": said{"file_id": "file-1"}}), 400, "messages[2].content[0]", "file_data"},
		"a number":             {[]any{said{"role": "user", "content": 7}, ask}, 400, "messages[0].content", "list of parts"},
		"files of a message":   {before(slices.Repeat([]any{small}, 33)...), 400, "messages[2].content", "more than 32 files"},
		"files of all":         {append(slices.Repeat([]any{said{"role": "user", "content": slices.Repeat([]any{small}, 26)}}, 5), ask), 400, "messages", "more than 128 files"},
		"texts of all":         {append(slices.Repeat([]any{said{"role": "user", "content": strings.Repeat("x", 300<<10)}}, 4), ask), 413, "messages", "1 MiB"},
		"a call of a tool":     {[]any{said{"role": "assistant", "tool_calls": []any{said{"id": "c", "function": said{"name": "f", "arguments": strings.Repeat("x", 1<<20)}}}}, ask}, 413, "messages", "1 MiB"},
		"20 pictures of 5 MB":  {slices.Repeat([]any{said{"role": "user", "content": []any{picturePiece("data:image/png;base64," + strings.Repeat("A", 20<<18))}}}, 20), 413, "", "8 MiB"},
		"a broken new message": {[]any{said{"role": "user", "content": []any{small}}, said{"role": "user", "content": []any{picturePiece("http:b.png")}}}, 400, "messages[1].content[0]", "https"},
	} {
		got := s.post("/v1/chat/completions", token, completionOf("helper", c.messages...))
		var refused struct {
			Error struct{ Message, Type, Param, Code string }
		}
		if err := json.Unmarshal([]byte(got.body), &refused); err != nil {
			t.Fatalf("%s: %s: %v", name, got.body, err)
		}
		if e := refused.Error; got.status != c.status || e.Param != c.param || !strings.Contains(e.Message, c.says) || e.Type != "invalid_request_error" || e.Code == "" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}

	turns, err := s.Store().Turns(t.Context(), exchange.TurnFilter{Limit: 1})
	if err != nil || len(turns) > 0 {
		t.Errorf("%d messages are stored, %v", len(turns), err)
	}
	if count, _, err := s.blobs().Size(t.Context()); err != nil || count > 0 {
		t.Errorf("%d files are stored, %v", count, err)
	}
	if got := s.post("/v1/chat/completions", token, completionOf("helper", slices.Repeat([]any{ask}, exchange.MaxEarlier)...)); got.status != http.StatusOK {
		t.Errorf("as many messages as may be: %d %s", got.status, got.body)
	}
}

// TestLongHistoriesOfChat: a history of the other surfaces is told from its beginning, as far as the agent's history goes, and refused where
// it is too long.
func TestLongHistoriesOfChat(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	history := func(count int) string {
		lines := make([]any, count)
		for i := range lines {
			lines[i] = said{"role": []string{"user", "assistant"}[i%2], "content": fmt.Sprint("line ", i)}
		}
		body, _ := json.Marshal(said{"agent": "remembers", "message": "and now?", "history": lines})
		return string(body)
	}
	if got := s.post("/v1/chat", s.Token("app"), history(150)); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if told := s.wasTold(); told[0] != "user: line 0" || told[len(told)-1] != "assistant: line 149" {
		t.Errorf("the agent was told %q", told)
	}
	if got := s.post("/v1/chat", s.Token("app"), history(exchange.MaxEarlier+1)); got.status != http.StatusBadRequest || !strings.Contains(got.body, "the limit is 1000") {
		t.Errorf("%d %s", got.status, got.body)
	}
}
