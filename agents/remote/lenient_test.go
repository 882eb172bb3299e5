package remote

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/google/go-cmp/cmp"

	"inbox/normalized"
)

// TestUnknownMembersAreSkipped: what a later version of the protocol adds costs nothing of an answer, and the task is not cancelled.
func TestUnknownMembersAreSkipped(t *testing.T) {
	future := `{"futureEvent":{"taskId":"t1","contextId":"c1","thing":[1,2]}}`
	updated := func(parts string) string {
		return `{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a","parts":[` + parts + `]}}}`
	}
	for name, c := range map[string]struct {
		streaming bool
		events    []string
		want      string
	}{
		"event first":  {true, []string{future, wrapped(taskJSON("WORKING", "")), chunk("hello", false), completedUpdate}, "hello"},
		"event inside": {true, []string{wrapped(taskJSON("WORKING", "")), chunk("hello", false), future, completedUpdate}, "hello"},
		"event with member": {true, []string{
			wrapped(taskJSON("WORKING", "")), `{"futureHint":{},` + chunk("hello", false)[1:], completedUpdate,
		}, "hello"},
		"member of a task": {true, []string{wrapped(taskJSON("COMPLETED", answerArtifact+`,"futureMember":{"parts":7}`))}, "the whole answer"},
		"part": {true, []string{
			wrapped(taskJSON("WORKING", "")), updated(`{"hologram":{"x":1}},{"text":"hello","newMember":true}`), completedUpdate,
		}, "hello"},
		"part of a message": {true, []string{`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"hologram":1},{"text":"hello"}]}}`}, "hello"},
		"part, whole": {false, []string{
			wrapped(taskJSON("COMPLETED", `,"artifacts":[{"artifactId":"a","parts":[{"hologram":"x"},{"text":"hello"}]}]`)),
		}, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			server := startScripted(t, c.streaming, func(call *call) {
				for _, event := range c.events {
					if c.streaming {
						call.event(event)
					} else {
						call.result(event)
					}
				}
			})
			got := mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x"))
			if text := textOf(got.response); !strings.HasPrefix(text, c.want) || got.response.Outcome() != normalized.StatusCompleted {
				t.Errorf("%s with %q, want %q", got.response.Outcome(), text, c.want)
			}
			if seen := server.seen(); len(seen) != 1 {
				t.Errorf("called %v", seen)
			}
		})
	}
}

// TestKnownEventsPass: what the SDK knows leaves the filter as it came, however it is cut into reads.
func TestKnownEventsPass(t *testing.T) {
	old, recent := &wire{peer: &peer{endpoint: endpoint{version: a2av0.Version}}}, &wire{peer: &peer{endpoint: endpoint{version: a2a.Version}}}
	rest := &wire{peer: &peer{endpoint: endpoint{version: a2a.Version, rest: true}}}
	for name, c := range map[string]struct {
		wire       *wire
		from, want string
	}{
		"known":        {recent, "id: 1\ndata: {\"result\":{\"task\":{\"id\":\"t\"}}}\n\n", "data: {\"result\":{\"task\":{\"id\":\"t\"}}}\n\n"},
		"lines":        {recent, "data: {\"result\":\r\ndata: {\"task\":{}}}\r\n\r\n", "data: {\"result\":\ndata: {\"task\":{}}}\n\n"},
		"error":        {recent, "data: {\"error\":{\"code\":1}}\n\n", "data: {\"error\":{\"code\":1}}\n\n"},
		"comments":     {recent, ": wait\n\n: wait\ndata: {\"error\":{}}\n\n: wait\n", "data: {\"error\":{}}\n\n"},
		"empty data":   {recent, "data:\n\n:\ndata: \n\n", ""},
		"no JSON":      {recent, "data: <html>\n\n", "data: <html>\n\n"},
		"unknown":      {recent, "data: {\"error\":{}}\n\ndata: {\"result\":{\"x\":1}}\n\n", "data: {\"error\":{}}\n\n"},
		"only unknown": {recent, "data: {\"result\":{\"x\":1}}\n\ndata:\n\n", "data: {\"result\":{\"x\":1}}\n\n"},
		"rest":         {rest, "data: {\"statusUpdate\":{}}\n\ndata: {\"x\":{}}\n\n", "data: {\"statusUpdate\":{}}\n\n"},
		"rest error":   {rest, "data: {\"error\":{\"code\":5}}\n\n", "data: {\"error\":{\"code\":5}}\n\n"},
		"old":          {old, "data: {\"result\":{\"kind\":\"task\"}}\n\ndata: {\"result\":{\"kind\":\"future\"}}\n\n", "data: {\"result\":{\"kind\":\"task\"}}\n\n"},
		"old part":     {old, "data: {\"result\":{\"kind\":\"message\",\"parts\":[{\"kind\":\"x\"},{\"kind\":\"text\"}]}}\n\n", "data: {\"result\":{\"kind\":\"message\",\"parts\":[{\"kind\":\"text\"}]}}\n\n"},
		"data":         {recent, "data: {\"result\":{\"message\":{\"parts\":[{\"x\":1},{\"data\":{\"parts\":[{\"n\":1.50}]}}]}}}\n\n", "data: {\"result\":{\"message\":{\"parts\":[{\"data\":{\"parts\":[{\"n\":1.50}]}}]}}}\n\n"},
		"without end":  {recent, "data: {\"error\":{}}", "data: {\"error\":{}}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, source := range []io.Reader{strings.NewReader(c.from), iotest.OneByteReader(strings.NewReader(c.from)), iotest.DataErrReader(strings.NewReader(c.from))} {
				filter := newKnownEvents(io.NopCloser(source), c.wire.knownEvent)
				got, err := io.ReadAll(filter)
				if diff := cmp.Diff(c.want, string(got)); diff != "" || err != nil {
					t.Errorf("%v %s", err, diff)
				}
			}
		})
	}
}
