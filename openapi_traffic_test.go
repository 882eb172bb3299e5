package inbox

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// traffic calls a server and holds every request and every answer to its description.
type traffic struct {
	*testing.T
	url    string
	doc    *description
	called map[string]bool // operations that succeeded
}

// call sends a request and returns the decoded answer. want is its status.
func (c *traffic) call(method, path, token, body string, want int, header ...string) map[string]any {
	c.Helper()
	request, err := http.NewRequestWithContext(c.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := bounded.Do(request)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	template := c.template(method, request.URL.Path)
	what := method + " " + path
	if response.StatusCode != want {
		content, _ := io.ReadAll(response.Body)
		c.Fatalf("%s: %d %s, want %d", what, response.StatusCode, content, want)
	}
	place := []string{"paths", template, strings.ToLower(method)}
	for name := range request.URL.Query() {
		if !c.parameter(place, name) {
			c.Errorf("%s: the parameter %s is not described", what, name)
		}
	}
	if want < 400 {
		c.called[method+" "+template] = true
		if body != "" && request.Header.Get("Content-Type") == "application/json" {
			c.doc.check(what+": request", []byte(body), append(place, "requestBody", "content", "application/json", "schema")...)
		}
	}
	return c.answer(what, response, place)
}

// template finds the path of the document for an address.
func (c *traffic) template(method, path string) string {
	c.Helper()
	asked := strings.Split(path, "/")
	for _, template := range slices.Sorted(maps.Keys(c.doc.find("paths").(map[string]any))) { // letters come before {
		steps := strings.Split(template, "/")
		fits := len(steps) == len(asked) && c.doc.find("paths", template, strings.ToLower(method)) != nil
		for i := range steps {
			fits = fits && (strings.HasPrefix(steps[i], "{") || steps[i] == asked[i])
		}
		if fits {
			return template
		}
	}
	c.Fatalf("%s %s is not described", method, path)
	return ""
}

func (c *traffic) parameter(place []string, name string) bool {
	list, _ := c.doc.find(append(slices.Clone(place), "parameters")...).([]any)
	return slices.ContainsFunc(list, func(one any) bool { return one.(map[string]any)["name"] == name })
}

// answer checks the body by the status and the media type that the server chose.
func (c *traffic) answer(what string, response *http.Response, place []string) (answer map[string]any) {
	c.Helper()
	place = append(slices.Clone(place), "responses", strconv.Itoa(response.StatusCode))
	described, is := c.doc.find(place...).(map[string]any)
	if !is {
		c.Errorf("%s: the status %d is not described", what, response.StatusCode)
		return nil
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch content, _ := described["content"].(map[string]any); {
	case content == nil:
		if response.StatusCode != http.StatusNoContent {
			c.Errorf("%s: the answer is not described", what)
		}
		return nil
	case content[media] == nil:
		c.Errorf("%s: the media type %s is not described", what, media)
		return nil
	}
	if response.StatusCode >= 400 {
		reference := c.doc.document["paths"].(map[string]any)[place[1]].(map[string]any)[place[2]].(map[string]any)["responses"].(map[string]any)[place[4]].(map[string]any)["$ref"].(string)
		place = strings.Split(strings.TrimPrefix(reference, "#/"), "/")
	}
	if media == "text/event-stream" {
		return c.events(what, response, append(place, "content", media, "x-events"))
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.Fatal(err)
	}
	c.doc.check(what+": answer", body, append(place, "content", media, "schema")...)
	if err := json.Unmarshal(body, &answer); err != nil {
		c.Fatal(err)
	}
	return answer
}

// events checks the data of the events up to the one after which such a stream says nothing for a while, and returns that one.
func (c *traffic) events(what string, response *http.Response, place []string) (answer map[string]any) {
	c.Helper()
	reader := bufio.NewReader(response.Body)
	for {
		event, more := nextEvent(reader)
		if !more {
			return answer
		}
		name := event.name
		if name == "" {
			name = "message"
		}
		if event.data == "[DONE]" {
			return answer
		}
		if c.doc.find(append(slices.Clone(place), name)...) == nil {
			c.Errorf("%s: the event %s is not described", what, name)
			continue
		}
		c.doc.check(what+": event "+name, []byte(event.data), append(slices.Clone(place), name)...)
		if err := json.Unmarshal([]byte(event.data), &answer); err != nil {
			c.Fatal(err)
		}
		if slices.Contains([]string{"item", "request", "turn", "done", "reply"}, name) {
			return answer
		}
	}
}

// TestTraffic calls the routes of a server as programs do, and holds what both sides say to the document.
func TestTraffic(t *testing.T) {
	s, _ := newShelfServer(t, "INBOX_CHAT_HOLD_GUESTS=true")
	c := &traffic{T: t, url: s.url, doc: describedBy(t, s.server.routes, true), called: map[string]bool{}}
	c.chats(s)
	c.bridges(s)
	c.sessions(s)
	c.tools(s)
	c.pulls(s)
	c.operates(s)
	c.everythingIsCalled()
}

// everythingIsCalled demands that each operation was called, or says in notCalled why it was not.
func (c *traffic) everythingIsCalled() {
	c.Helper()
	routes := operations()
	for key := range routes {
		if reason := notCalled[key]; c.called[key] == (reason != "") {
			c.Errorf("%s: called %t, and notCalled says %q", key, c.called[key], reason)
		}
	}
	for key := range notCalled {
		if _, is := routes[key]; !is {
			c.Errorf("notCalled has %s, which is no operation", key)
		}
	}
}

// notCalled are operations that only other tests call, with the reason.
var notCalled = map[string]string{}
