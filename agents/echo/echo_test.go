package echo

import (
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/normalized"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	agenttest.Suite{New: func(*testing.T) agents.Agent { return New() }}.Run(t)
}

func reply(t *testing.T, message normalized.Message) normalized.Response {
	t.Helper()
	fold := normalized.NewFold(normalized.DefaultLimits())
	for delta, err := range New().Handle(t.Context(), agenttest.Turn("t", message)) {
		if err != nil {
			t.Fatal(err)
		}
		if err := fold.Add(delta); err != nil {
			t.Fatal(err)
		}
	}
	response, err := fold.Response()
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func TestAnswers(t *testing.T) {
	messages := agenttest.Messages()
	hello := normalized.Text("Hello, this is @echo@inbox.example. Write me something and I will send it back.")
	tests := map[string][]normalized.Part{
		"text":        messages["text"].Parts,
		"markdown":    messages["markdown"].Parts,
		"html":        messages["html"].Parts,
		"long text":   messages["long text"].Parts,
		"several":     messages["several"].Parts,
		"empty":       {hello},
		"white space": {hello},
		"file only":   {normalized.Text("You also sent:\n- map.png (image/png): a map of the island")},
		"everything": {messages["text"].Parts[0], normalized.Text("You also sent:\n- map.png (image/png): a map of the island\n" +
			"- An example https://example.org/a?b=c\n- result (application/json)")},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			got := reply(t, messages[name])
			if expected := (normalized.Response{InReplyTo: messages[name].ID, ThreadID: messages[name].ThreadID, Parts: want}); !got.Equal(expected) {
				t.Errorf("got  %+v\nwant %+v", got, expected)
			}
		})
	}
}

func TestNamesOfStrangersStayInTheirLine(t *testing.T) {
	message := agenttest.Messages()["file only"]
	message.Parts[0].Name, message.Parts[0].Alt, message.Parts[0].Size = "a\n- b.png", "x\r\ny", 2<<20
	if got, want := reply(t, message).Parts[0].Content, "You also sent:\n- a - b.png (image/png, 2.0 MiB): x y"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	message.Parts[0].Name, message.Parts[0].Alt, message.Parts[0].Size, message.Parts[0].MIME = "", "", 3, ""
	if got, want := reply(t, message).Parts[0].Content, "You also sent:\n- a file without a name (3 bytes)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPiecesAreTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab ß€🙂\n")), 0, 4000, -1).Draw(t, "text")
		cut := pieces(text)
		if joined := strings.Join(cut, ""); joined != text {
			t.Fatalf("joined pieces are %d bytes, the text %d", len(joined), len(text))
		}
		for _, piece := range cut {
			if len(piece) > pieceBytes || !utf8.ValidString(piece) {
				t.Fatalf("piece of %d bytes, valid %v", len(piece), utf8.ValidString(piece))
			}
		}
	})
}
