package webhook

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/internal/await"
)

func readAll(source io.Reader) (events []event, err error) {
	reader := newEventReader(source)
	for {
		next, err := reader.next()
		if err != nil {
			return events, err
		}
		events = append(events, next)
	}
}

func TestEvents(t *testing.T) {
	tests := map[string]struct {
		source string
		want   []event
		err    error
	}{
		"empty":                 {"", nil, io.EOF},
		"one":                   {"data: a\n\n", []event{{"", "a"}}, io.EOF},
		"named":                 {"event: delta\ndata: a\n\n", []event{{"delta", "a"}}, io.EOF},
		"no blank":              {"event:delta\ndata:a\n\n", []event{{"delta", "a"}}, io.EOF},
		"two blanks":            {"data:  a\n\n", []event{{"", " a"}}, io.EOF},
		"lines":                 {"data: a\ndata\ndata: b\n\n", []event{{"", "a\n\nb"}}, io.EOF},
		"empty data":            {"data\n\n", []event{{"", ""}}, io.EOF},
		"name without data":     {"event: x\n\ndata: a\n\n", []event{{"", "a"}}, io.EOF},
		"comments":              {":\n: hi\ndata: a\n:x\ndata: b\n\n", []event{{"", "a\nb"}}, io.EOF},
		"id and retry":          {"id: 1\nretry: 2\nodd: 3\ndata: a\n\n", []event{{"", "a"}}, io.EOF},
		"CR LF":                 {"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []event{{"", "a\nb"}, {"", "c"}}, io.EOF},
		"CR":                    {"data: a\r\rdata: b\r\r", []event{{"", "a"}, {"", "b"}}, io.EOF},
		"byte order mark":       {"\ufeffdata: a\n\n", []event{{"", "a"}}, io.EOF},
		"byte order mark later": {"data: a\n\n\ufeffdata: b\n\n", []event{{"", "a"}}, io.EOF},
		"no end":                {"data: a\n", nil, errCutEvent},
		"no line end":           {"data: a", nil, errCutEvent},
		"large":                 {"data: " + strings.Repeat("x", maxEventBytes), nil, errEventTooLarge},
		"large in lines":        {strings.Repeat("data: "+strings.Repeat("x", 1<<16)+"\n: y\n", 20), nil, errEventTooLarge},
		"comments without end":  {strings.Repeat(": "+strings.Repeat("x", 1<<16)+"\n", 40) + "data: a\n\n", []event{{"", "a"}}, io.EOF},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sources := []io.Reader{strings.NewReader(test.source)}
			if len(test.source) < 1<<10 {
				sources = append(sources, iotest.OneByteReader(strings.NewReader(test.source)))
			}
			for _, source := range sources {
				got, err := readAll(source)
				if !errors.Is(err, test.err) {
					t.Errorf("error = %v, want %v", err, test.err)
				}
				if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(event{})); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestEventsComeAtOnce reads an event that ends with CR before anything follows it.
func TestEventsComeAtOnce(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		source, sink := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.WriteString(sink, "data: a"+end)
		}()
		if got, err := newEventReader(source).next(); err != nil || got.data != "a" {
			t.Errorf("%q: %v, %v", end, got, err)
		}
		await.Receive(t, done, "the end of the writer")
		_ = sink.Close()
	}
}

func TestWrittenEventsAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.StringOf(rapid.SampledFrom([]rune("ab: ß{}")))
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) event {
			return event{line.Draw(t, "name"), strings.Join(rapid.SliceOfN(line, 1, 4).Draw(t, "lines"), "\n")}
		})).Draw(t, "events")
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "line end")
		var source strings.Builder
		for _, one := range want {
			source.WriteString("event: " + one.name + end)
			for data := range strings.SplitSeq(one.data, "\n") {
				source.WriteString("data: " + data + end)
			}
			source.WriteString(end)
		}
		got, err := readAll(strings.NewReader(source.String()))
		if !errors.Is(err, io.EOF) || len(got) != len(want) {
			t.Fatalf("%d of %d events, %v", len(got), len(want), err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("event %d is %q, want %q", i, got[i], want[i])
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	for _, seed := range []string{"event: delta\ndata: {}\n\n", "\ufeffdata\r\r\n:\n\n", "data: a\rdata: b\r\n\n", "id: 1\n\ndata:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		got, err := readAll(strings.NewReader(source))
		if err == nil {
			t.Error("no end")
		}
		size := 0
		for _, one := range got {
			size += len(one.name) + len(one.data)
		}
		if size > len(source) {
			t.Errorf("%d bytes of events from %d bytes", size, len(source))
		}
	})
}
