package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/golden"
	"inbox/internal/httpserver"
)

type counting struct {
	calls int
	err   error
}

func (c *counting) Usage(context.Context) (Counts, error) {
	c.calls++
	return Counts{1, 2, int64(c.calls)}, c.err
}

func options() Options {
	mail := Contributor(func(agent exchange.AgentProfile) []exchange.Link {
		return []exchange.Link{{Rel: "mailto", Href: "mailto:" + agent.Name + "@inbox.example"}}
	})
	actor := Contributor(func(agent exchange.AgentProfile) []exchange.Link {
		return []exchange.Link{{Rel: "self", Type: "application/activity+json", Href: "https://web.inbox.example/agents/" + agent.Name}}
	})
	card := Contributor(func(agent exchange.AgentProfile) []exchange.Link {
		return []exchange.Link{{Rel: relAgentCard, Type: "application/json", Href: "https://web.inbox.example/a2a/" + agent.Name}}
	})
	return Options{
		Domain: "inbox.example", PublicURL: "https://web.inbox.example", Version: "1.2.3",
		Directory:    exchangetest.Agents{{Name: "echo"}, {Name: "Other.One"}},
		Contributors: []Contributor{mail, card, actor},
		Subjects: []Subject{{"@inbox.example@inbox.example", []exchange.Link{
			{Rel: "self", Type: "application/activity+json", Href: "https://web.inbox.example/actor"},
		}}},
		Removed:     func(name string) bool { return name == "former" },
		Description: "Agents <here>", Contact: "ops@inbox.example", Repository: "https://git.example/inbox",
	}
}

func handler(t *testing.T, o Options) http.Handler {
	t.Helper()
	server, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	router, err := httpserver.New(httpserver.Options{Routes: server.Routes(), WithoutHealth: true})
	if err != nil {
		t.Fatal(err)
	}
	return router.Handler()
}

func get(t *testing.T, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	if strings.HasSuffix(name, ".json") {
		got = golden.Indented(t, got)
	}
	golden.Compare(t, name, got)
}

func TestDocuments(t *testing.T) {
	o := options()
	o.Usage = &counting{}
	h := handler(t, o)
	cases := []struct{ path, file, mediaType string }{
		{"/.well-known/webfinger?resource=acct:echo@inbox.example", "webfinger.json", "application/jrd+json"},
		{"/.well-known/host-meta", "host-meta.xml", "application/xrd+xml; charset=utf-8"},
		{"/.well-known/nodeinfo", "nodeinfo.json", "application/json"},
		{"/nodeinfo/2.0", "nodeinfo-2.0.json", `application/json; profile="http://nodeinfo.diaspora.software/ns/schema/2.0#"`},
		{"/nodeinfo/2.1", "nodeinfo-2.1.json", `application/json; profile="http://nodeinfo.diaspora.software/ns/schema/2.1#"`},
	}
	for _, c := range cases {
		w := get(t, h, c.path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != c.mediaType || w.Header().Get("Access-Control-Allow-Origin") != "*" ||
			!strings.Contains(w.Header().Get("Cache-Control"), "max-age=") {
			t.Errorf("%s: %d %v", c.path, w.Code, w.Header())
		}
		compare(t, c.file, w.Body.Bytes())
	}
}

func TestWebFingerResources(t *testing.T) {
	h := handler(t, options())
	cases := []struct {
		resource string
		status   int
		subject  string
	}{
		{"acct:echo@inbox.example", 200, "acct:echo@inbox.example"},
		{"acct:ECHO@Inbox.Example", 200, "acct:echo@inbox.example"},
		{"ACCT:echo@inbox.example", 200, "acct:echo@inbox.example"},
		{"echo@inbox.example", 200, "acct:echo@inbox.example"},
		{"@echo@inbox.example", 200, "acct:echo@inbox.example"},
		{"acct:echo@web.inbox.example", 200, "acct:echo@inbox.example"},
		{"acct:other.one@inbox.example", 200, "acct:Other.One@inbox.example"},
		{"https://web.inbox.example/agents/echo", 200, "acct:echo@inbox.example"},
		{"https://web.inbox.example/@echo", 200, "acct:echo@inbox.example"},
		{"acct:inbox.example@inbox.example", 200, "acct:inbox.example@inbox.example"},
		{"https://web.inbox.example/actor", 200, "acct:inbox.example@inbox.example"},
		{"acct:former@inbox.example", 410, ""},
		{"acct:nobody@inbox.example", 404, ""},
		{"acct:acct:echo@inbox.example", 404, ""},
		{"acct:@echo@inbox.example", 404, ""},
		{"acct:echo@elsewhere.example", 404, ""},
		{"acct:echo@inbox.example.evil.example", 404, ""},
		{"https://web.inbox.example/elsewhere/echo", 404, ""},
		{"https://elsewhere.example/agents/echo", 404, ""},
		{"https://web.inbox.example/%zz", 404, ""},
		{"@echo", 404, ""},
		{"mailto:echo@inbox.example", 404, ""},
		{"", 400, ""},
		{strings.Repeat("a", maxResourceBytes+1), 400, ""},
	}
	for _, c := range cases {
		w := get(t, h, "/.well-known/webfinger?resource="+url.QueryEscape(c.resource))
		var got resource
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
		}
		if w.Code != c.status || got.Subject != c.subject || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%.80s: %d %q, want %d %q", c.resource, w.Code, got.Subject, c.status, c.subject)
		}
	}
	if w := get(t, h, "/.well-known/webfinger"); w.Code != http.StatusBadRequest {
		t.Errorf("without a resource: %d", w.Code)
	}
}

func TestWebFingerRel(t *testing.T) {
	h := handler(t, options())
	for range 2 { // filtering one answer leaves the next whole
		for resource, want := range map[string]string{
			"acct:echo@inbox.example&rel=self": "self", "acct:inbox.example@inbox.example&rel=x": "",
			"acct:inbox.example@inbox.example": "self", "acct:echo@inbox.example&rel=mailto&rel=self": "self mailto",
		} {
			var got resource2
			if err := json.Unmarshal(get(t, h, "/.well-known/webfinger?resource="+resource).Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.rels() != want {
				t.Errorf("%s: %q, want %q", resource, got.rels(), want)
			}
		}
	}
}

type resource2 struct{ Links []exchange.Link }

func (r resource2) rels() string {
	var rels []string
	for _, link := range r.Links {
		rels = append(rels, link.Rel)
	}
	return strings.Join(rels, " ")
}

func TestDomainWithPort(t *testing.T) {
	o := options()
	o.Domain, o.PublicURL, o.Subjects = "127.0.0.1:8080", "http://127.0.0.1:8080", nil
	h := handler(t, o)
	if w := get(t, h, "/.well-known/webfinger?resource=acct%3Aecho%40127.0.0.1%3A8080"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"acct:echo@127.0.0.1:8080"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get(t, h, "/.well-known/webfinger?resource=acct:echo@127.0.0.1"); w.Code != http.StatusNotFound {
		t.Errorf("without the port: %d", w.Code)
	}
}

func TestUsageIsCountedRarely(t *testing.T) {
	usage, now := &counting{}, time.Unix(0, 0)
	o := options()
	o.Usage, o.Now = usage, func() time.Time { return now }
	h := handler(t, o)
	posts := func() string {
		var info nodeInfo
		_ = json.Unmarshal(get(t, h, "/nodeinfo/2.1").Body.Bytes(), &info)
		return strings.Repeat("i", int(info.Usage.LocalPosts))
	}
	if first, second := posts(), posts(); first != "i" || second != "i" || usage.calls != 1 {
		t.Errorf("counted %d times", usage.calls)
	}
	now = now.Add(usageLife)
	if posts() != "ii" {
		t.Error("not counted again")
	}
	now = now.Add(usageLife)
	usage.err = errors.New("down")
	if posts() != "ii" {
		t.Error("the last numbers are lost")
	}
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no directory": func(o *Options) { o.Directory = nil }, "domain": func(o *Options) { o.Domain = "a b" }, "public url": func(o *Options) { o.PublicURL = "nowhere" },
	} {
		o := options()
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzWebFinger(f *testing.F) {
	server, err := New(options())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		"acct:echo@inbox.example", "acct:ECHO@Inbox.Example", "echo@inbox.example", "@echo@inbox.example",
		"acct:echo@inbox.example.evil.example", "acct:echo@evil.example@inbox.example", "acct:inbox.example@inbox.example",
		"acct%3Aecho%40inbox.example", "acct:echo@inbox.example:443", "acct:ëcho@inbox.example", "acct:@inbox.example", "acct:", "mailto:echo@inbox.example",
		"https://web.inbox.example/@echo", "https://web.inbox.example/agents/echo", "https://web.inbox.example/agents/%65cho", "https://[::1",
		"https://web.inbox.example@evil.example/@echo", "\x00", strings.Repeat("a", 4096),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, asked string) {
		found, _ := server.find(asked)
		if found != nil && !strings.HasSuffix(found.Subject, "@inbox.example") {
			t.Errorf("%q: %q", asked, found.Subject)
		}
	})
}
