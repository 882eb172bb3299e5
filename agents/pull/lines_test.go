package pull

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"inbox/internal/await"
	"inbox/normalized"
)

func readLines(t *testing.T, source io.Reader) []string {
	t.Helper()
	lines := newLineReader(source, func() {})
	var got []string
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line))
	}
}

// FuzzLines reads the same lines however the bytes come.
func FuzzLines(f *testing.F) {
	f.Add("a\nb\r\n\n\r\nlast")
	f.Add("\n")
	f.Add("")
	f.Add(strings.Repeat("long", 17000) + "\nx")
	f.Fuzz(func(t *testing.T, body string) {
		if len(body) > maxLineBytes {
			return
		}
		var want []string
		for line := range strings.Lines(body) {
			want = append(want, strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
		}
		for name, source := range map[string]io.Reader{
			"whole": strings.NewReader(body), "byte by byte": iotest.OneByteReader(strings.NewReader(body)),
			"with the end": iotest.DataErrReader(strings.NewReader(body)),
		} {
			got := readLines(t, source)
			if strings.Join(got, "\n") != strings.Join(want, "\n") || len(got) != len(want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}

// FuzzDeltas returns any body to a turn: what is taken makes the same answer on every node.
func FuzzDeltas(f *testing.F) {
	f.Add([]byte(`{"kind":"text","text":"a"}`+"\n\n"+`{"kind":"part_end"}`), "")
	f.Add([]byte(`{"kind":"response","response":{"parts":[{"kind":"text","mime":"text/plain","content":"x"}]}}`), "application/json")
	f.Add([]byte(`{"kind":"text","text":"<\u2028>"}`+"\n"+`{"kind":"nonsense"}`), "")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		n := newNode(t, nil, Settings{})
		done := n.run(t.Context(), question())
		turn := n.take(t)
		r := request(t.Context(), http.MethodPost, turn.path("deltas"), bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		n.handler.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
		n.service.sessions.forget(turn.Lease.ID) // as another node would
		status, said := n.ask(t, http.MethodPost, turn.path("answer"), "")
		switch status {
		case http.StatusOK:
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		default:
			t.Errorf("%d %s", status, said)
		}
		got := await.Receive(t, done, "the end of the turn")
		if got.err != nil {
			t.Fatalf("the deltas %q were taken, and then: %v", body, got.err)
		}
		if err := normalized.ValidateResponse(got.response.Answering(question().Message), question().Message, normalized.DefaultLimits()); err != nil && status == http.StatusOK {
			got.response.Clean() // as the engine does
			if err := normalized.ValidateResponse(got.response.Answering(question().Message), question().Message, normalized.DefaultLimits()); err != nil {
				t.Error(err)
			}
		}
	})
}
