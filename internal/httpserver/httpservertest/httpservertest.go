// Package httpservertest reads streams of server-sent events in tests as the decoders of widely used clients do, which differ
// in what an empty line means. No server imports it.
package httpservertest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Event is one dispatched event.
type Event struct{ Name, ID, Data string }

// All are the decoders by the name of their program.
var All = map[string]func(stream string) []Event{
	"HTML standard":              Standard,
	"httpx-sse, openai-python":   Python,
	"a2a-go":                     Go,
	"lines that begin with data": Lines,
}

// Standard reads as the HTML standard says (section 9.2.6): browsers, the eventsource-parser of JavaScript and the
// eventsource-stream of Rust do so. An empty line without data before it dispatches nothing.
func Standard(stream string) []Event {
	return read(stream, func(_ Event, data []string, _ bool) bool { return len(data) > 0 })
}

// Python reads as httpx-sse 0.4 and openai-python 2 do: an empty line dispatches an event when a name, data, a wait or an id
// is known, and the id of an earlier event stays known.
func Python(stream string) []Event {
	return read(stream, func(event Event, data []string, retry bool) bool {
		return event.Name != "" || len(data) > 0 || event.ID != "" || retry
	})
}

// Lines reads as programs of a few lines do, which split at line ends and look at lines that begin "data:" only.
func Lines(stream string) []Event {
	var events []Event
	for line := range strings.SplitSeq(stream, "\n") {
		if data, is := strings.CutPrefix(line, "data:"); is {
			events = append(events, Event{Data: strings.TrimSpace(data)})
		}
	}
	return events
}

// Go reads as the SDK of A2A for Go does (2.4.0): it knows data only, and drops an event whose data is empty.
func Go(stream string) []Event {
	events := Standard(stream)
	for i := range events {
		events[i] = Event{Data: events[i].Data}
	}
	return slices.DeleteFunc(events, func(e Event) bool { return e.Data == "" })
}

func read(stream string, dispatches func(event Event, data []string, retry bool) bool) []Event {
	var (
		events []Event
		event  Event
		data   []string
		retry  bool
	)
	for line := range strings.SplitSeq(strings.TrimSuffix(stream, "\n"), "\n") { // what follows the last line end is no line
		line = strings.TrimSuffix(line, "\r")
		field, content, _ := strings.Cut(line, ":")
		content = strings.TrimPrefix(content, " ")
		switch {
		case line == "":
			if dispatches(event, data, retry) {
				event.Data = strings.Join(data, "\n")
				events = append(events, event)
			}
			event, data, retry = Event{ID: event.ID}, nil, false
		case field == "": // a comment
		case field == "event":
			event.Name = content
		case field == "data":
			data = append(data, content)
		case field == "id":
			event.ID = content
		case field == "retry":
			retry = true
		}
	}
	return events
}

// Check fails the test unless every decoder reads want events of the stream, each with JSON or "[DONE]" as its data.
func Check(t *testing.T, stream string, want int) {
	t.Helper()
	for name, decode := range All {
		events := decode(stream)
		if len(events) != want {
			t.Errorf("%s reads %d events, want %d", name, len(events), want)
		}
		if i := slices.IndexFunc(events, func(e Event) bool { return e.Data != "[DONE]" && !json.Valid([]byte(e.Data)) }); i >= 0 {
			t.Errorf("%s reads %s as event %d, which is not JSON\n%s", name, strconv.Quote(events[i].Data), i, stream)
		}
	}
}
