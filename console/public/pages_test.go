package public

import (
	"context"
	"encoding/xml"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/internal/catalog/catalogtest"
	"inbox/internal/design"
	"inbox/internal/httpserver"
	"inbox/internal/markup/markuptest"
)

func TestTranslations(t *testing.T) { catalogtest.Check(t, ".", texts) }

// directory is one agent whose texts try to be markup.
type directory struct{}

func (directory) Agent(name string) (exchange.AgentProfile, bool) {
	return exchange.AgentProfile{
		Name: "echo", Address: "@echo@agents.example", DisplayName: "Echo <script>alert(1)</script>", Summary: "Says it \"again\".",
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}, strings.EqualFold(name, "echo")
}

func (d directory) Agents() []exchange.AgentProfile {
	agent, _ := d.Agent("echo")
	return []exchange.AgentProfile{agent}
}

func options() Options {
	return Options{
		Agents: directory{}, PublicURL: "https://agents.example", Domain: "agents.example",
		Mail: func(a exchange.AgentProfile) string { return a.Name + "@agents.example" },
		Chat: func(string) bool { return true },
		Notes: func(context.Context, string, int) ([]Note, error) {
			return []Note{{Address: "https://agents.example/o/1", Published: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), Text: "Hello <b>you</b>", HTML: "<p>Hello</p>"}}, nil
		},
		Federation: func() Federation {
			return Federation{Domain: "agents.example", Host: "web.agents.example", Signer: "https://web.agents.example/actor"}
		},
		Handling: func(string) Handling {
			return Handling{Messages: 30 * 24 * time.Hour, Privacy: "https://example.org/privacy"}
		},
	}
}

func get(t *testing.T, options Options, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	server, err := httpserver.New(httpserver.Options{Routes: NewPages(options).Routes()})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	maps.Copy(r.Header, header)
	recorder := httptest.NewRecorder()
	server.Handler().ServeHTTP(recorder, r)
	return recorder
}

func TestPages(t *testing.T) {
	for _, test := range []struct {
		path   string
		status int
		holds  []string
	}{
		{"/", http.StatusOK, []string{`href="/@echo"`, "@echo@agents.example", `property="og:type" content="website"`, `property="og:image" content="https://agents.example/assets/`, `property="og:image:alt" content="A figure`}},
		{"/@echo", http.StatusOK, []string{
			"mailto:echo@agents.example", "https://agents.example/a2a/echo/.well-known/agent-card.json", `lang="en"`, "width=device-width", "Automated",
			`href="/@echo/chat"`, `href="/@echo/feed"`, "https://agents.example/o/1", "Hello &lt;b&gt;you", "after 30 days", "https://example.org/privacy",
			`rel="canonical" href="https://agents.example/@echo"`, `property="og:type" content="profile"`,
			`property="og:image" content="https://agents.example` + design.AvatarAddress("echo", "@echo@agents.example") + `"`, `property="og:image:width" content="480"`,
			`property="og:image:alt" content="Picture of Echo &lt;script&gt;`, `name="twitter:card" content="summary"`, `application/activity+json`, "<path class=\"qr-code\"",
		}},
		{FederationPath, http.StatusOK, []string{"the domains agents.example and web.agents.example", "https://web.agents.example/actor", "published no contact", "without an end", "<h1>For administrators"}},
		{"/@ECHO", http.StatusOK, []string{"@echo@agents.example"}},
		{"/@nobody", http.StatusNotFound, []string{"No account has that name", "noindex"}},
		{"/@nobody/feed", http.StatusNotFound, []string{"No account has that name"}},
		{"/@nobody/follow", http.StatusNotFound, []string{"No account has that name"}},
		{"/@echo/follow", http.StatusOK, []string{`name="server"`}},
		{"/@echo/follow?server=nowhere", http.StatusBadRequest, []string{`role="alert"`, `value="nowhere"`}},
	} {
		t.Run(test.path, func(t *testing.T) {
			page := get(t, options(), test.path, nil)
			if page.Code != test.status {
				t.Fatalf("status %d", page.Code)
			}
			for _, want := range test.holds {
				if !strings.Contains(page.Body.String(), want) {
					t.Errorf("the page lacks %q:\n%s", want, page.Body)
				}
			}
			if strings.Contains(page.Body.String(), "<script>") {
				t.Error("markup of the profile reached the page")
			}
			for name, want := range map[string]string{
				"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Set-Cookie": "",
			} {
				if got := page.Header().Get(name); got != want {
					t.Errorf("%s: %q", name, got)
				}
			}
			if policy := page.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'self'") || strings.Contains(policy, "unsafe") {
				t.Errorf("content security policy %q", policy)
			}
		})
	}
}

// TestPagesAreCached: a page that has not changed is not sent again, and one of another language is another one.
func TestPagesAreCached(t *testing.T) {
	first := get(t, options(), "/@echo", nil)
	again := get(t, options(), "/@echo", http.Header{"If-None-Match": {first.Header().Get("ETag")}})
	if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("an unchanged page is answered with %d and %d bytes", again.Code, again.Body.Len())
	}

	german := get(t, options(), "/@echo", http.Header{"If-None-Match": {first.Header().Get("ETag")}, "Accept-Language": {"de-AT, en;q=0.5"}})
	if german.Code != http.StatusOK || !strings.Contains(german.Body.String(), `lang="de"`) || !strings.Contains(german.Body.String(), "Wer ihn betreibt") && !strings.Contains(german.Body.String(), "So erreicht man ihn") {
		t.Errorf("the German page: %d\n%s", german.Code, german.Body)
	}
	if vary := first.Header().Get("Vary"); !strings.Contains(vary, "Accept-Language") {
		t.Errorf("Vary %q", vary)
	}
}

// TestOperatorOnTheProfile: people must find someone to complain to.
func TestOperatorOnTheProfile(t *testing.T) {
	with := options()
	with.Operator = []Field{
		{Name: "Operator", Value: "Example <Org>"}, {Name: "Contact", Value: "help@example.com", Href: "mailto:help@example.com"},
		{Name: "Privacy", Value: "javascript:alert(1)", Href: "javascript:alert(1)"},
	}

	page := get(t, with, "/@echo", nil).Body.String()
	for _, want := range []string{"Who operates it", "Example &lt;Org&gt;", `<a href="mailto:help@example.com">help@example.com</a>`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, `href="javascript:`) {
		t.Errorf("a script became a link:\n%s", page)
	}
	if strings.Contains(get(t, options(), "/@echo", nil).Body.String(), "Who operates it") {
		t.Error("a heading without lines")
	}
}

// TestHiddenAgents have their page, for those who know it.
func TestHiddenAgents(t *testing.T) {
	with := options()
	with.Hidden = func(string) bool { return true }
	if page := get(t, with, "/", nil).Body.String(); strings.Contains(page, "@echo") || !strings.Contains(page, "No agents yet") {
		t.Error(page)
	}
	if page := get(t, with, "/@echo", nil); page.Code != http.StatusOK || !strings.Contains(page.Body.String(), `name="robots" content="noindex"`) {
		t.Error(page.Code, page.Body)
	}
}

// TestPictures: a picture that the operator chose may load, by https alone.
func TestPictures(t *testing.T) {
	for address, shown := range map[string]bool{"https://cdn.example/echo.png": true, "http://cdn.example/echo.png": false, "javascript:alert(1)": false, "": false} {
		with := options()
		with.Picture = func(string) string { return address }
		page := get(t, with, "/@echo", nil)
		if got := strings.Contains(page.Body.String(), `<img class="avatar large" src="https://cdn.example/echo.png"`); got != shown {
			t.Errorf("%q is shown: %v", address, got)
		}
		if got := strings.Contains(page.Body.String(), `property="og:image" content="https://cdn.example/echo.png"`); got != shown {
			t.Errorf("%q is told to other sites: %v", address, got)
		}
		if got := strings.Contains(page.Body.String(), `"og:image:width"`); got == shown {
			t.Errorf("%q: its size is told: %v", address, got)
		}
		if got := strings.Contains(page.Header().Get("Content-Security-Policy"), "img-src 'self' data: https://cdn.example;"); got != shown {
			t.Errorf("%q may load: %v", address, got)
		}
	}
}

func TestNotesThatCannotBeRead(t *testing.T) {
	with := options()
	with.Notes = func(context.Context, string, int) ([]Note, error) { return nil, errors.New("database") }
	for _, path := range []string{"/@echo", "/@echo/feed"} {
		if page := get(t, with, path, nil); page.Code != http.StatusInternalServerError || strings.Contains(page.Body.String(), "database") {
			t.Errorf("%s: %d %s", path, page.Code, page.Body)
		}
	}
}

// TestFollow: the form leads to the reader's server, the link of another site does not lead on by itself.
func TestFollow(t *testing.T) {
	const target = "https://social.example/authorize_interaction?uri=https%3A%2F%2Fagents.example%2Fagents%2Fecho"
	for _, server := range []string{"social.example", "%40ann%40Social.example", "https%3A%2F%2Fsocial.example%2F%40ann%3Fx", "+social.example.+"} {
		own := get(t, options(), "/@echo/follow?server="+server, http.Header{"Sec-Fetch-Site": {"same-origin"}})
		if own.Code != http.StatusSeeOther || own.Header().Get("Location") != target {
			t.Errorf("%s: %d to %q", server, own.Code, own.Header().Get("Location"))
		}
	}

	for _, site := range []string{"", "cross-site"} {
		other := get(t, options(), "/@echo/follow?server=social.example", http.Header{"Sec-Fetch-Site": {site}})
		if other.Code != http.StatusOK || !strings.Contains(other.Body.String(), `href="`+target+`"`) {
			t.Errorf("from %q: %d\n%s", site, other.Code, other.Body)
		}
	}

	for _, server := range []string{
		"127.0.0.1", "1.2", "0x7f.1", "%5B::1%5D", "localhost", "a.example%3A8080", "javascript%3Aalert(1)", "ftp%3A%2F%2Fa.example", "a..example", "a.example%5C.b",
		strings.Repeat("a.", 200) + "example", "%E2%80%AEa.example", "a.example%23",
	} {
		if refused := get(t, options(), "/@echo/follow?server="+server, http.Header{"Sec-Fetch-Site": {"same-origin"}}); refused.Code != http.StatusBadRequest {
			t.Errorf("%s: %d to %q", server, refused.Code, refused.Header().Get("Location"))
		}
	}
}

// TestServerNames: whatever is asked for, the name that comes out is a host and nothing else.
func TestServerNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host, valid := serverName(rapid.OneOf(rapid.String(), rapid.StringMatching(`(https?://)?(@?[a-z]{1,3}@)?[a-zA-Z0-9.:_-]{1,30}(/[a-z]*)?`)).Draw(t, "words"))
		if valid && (strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || !strings.Contains(host, ".")) {
			t.Fatalf("%q is taken as a host", host)
		}
	})
}

func TestFeed(t *testing.T) {
	answer := get(t, options(), "/@echo/feed", nil)
	var feed atomFeed
	if err := xml.Unmarshal(answer.Body.Bytes(), &feed); err != nil {
		t.Fatal(err)
	}
	if answer.Header().Get("Content-Type") != "application/atom+xml; charset=utf-8" || len(feed.Entries) != 1 || feed.Updated != "2026-03-01T09:00:00Z" ||
		feed.Entries[0].ID != "https://agents.example/o/1" || feed.Entries[0].Title != "Hello <b>you</b>" || feed.Entries[0].Content != (atomContent{"html", "<p>Hello</p>"}) {
		t.Errorf("%+v", feed)
	}
	if again := get(t, options(), "/@echo/feed", http.Header{"If-None-Match": {answer.Header().Get("ETag")}}); again.Code != http.StatusNotModified {
		t.Errorf("an unchanged feed is answered with %d", again.Code)
	}

	without := options()
	without.Notes = nil
	if answer := get(t, without, "/@echo/feed", nil); !strings.Contains(answer.Body.String(), "<updated>2026-01-02T03:04:05Z") {
		t.Error(answer.Body)
	}
}

// TestCode: a code begins with the pattern in its corner, behind the quiet zone; what does not fit is an error and no wrong code.
func TestCode(t *testing.T) {
	drawn, err := encode("https://agents.example/@echo")
	if err != nil || !strings.HasPrefix(drawn.Path, "M4 4h7v1h-7z") {
		t.Fatalf("%v %v", drawn, err)
	}
	if _, err := encode(strings.Repeat("a", 4000)); err == nil {
		t.Error("a code of 4000 letters was drawn")
	}
}

// TestTextsNeverBecomeMarkup fills every text of every page with one that tries to leave its place.
func TestTextsNeverBecomeMarkup(t *testing.T) {
	head := design.Head{Title: "x", Lang: "x", Description: "x", Canonical: "x", OpenGraph: design.OpenGraph{Type: "x", Site: "x", Image: design.Picture{Address: "x", Alt: "x", Size: 1}}, Links: []design.Link{{Rel: "x", Type: "x", Href: "x", Title: "x"}}}
	full := view{
		AgentProfile: exchange.AgentProfile{Name: "x", Address: "x", DisplayName: "x", Summary: "x", Skills: []exchange.Skill{{Name: "x", Description: "x"}}},
		Label:        "x", Mail: "x", Card: "x", Address: "x", Page: "x", Chat: true, Notes: []Note{{Address: "x", Summary: "x", Text: "x", HTML: "x"}},
		Operator: []Field{{"x", "x", "x"}, {"x", "x", ""}}, QR: code{"x", "x"},
	}
	filled := func(text string) view {
		v := markuptest.Fill(full, text)
		v.Handling = &Handling{ShowsTools: true, Privacy: text}
		return v
	}

	for name, page := range map[string]func(text string) templ.Component{
		"front": func(text string) templ.Component {
			v := filled(text)
			return frontPage(markuptest.Fill(head, text), []view{v}, v.Operator)
		},
		"empty":   func(text string) templ.Component { return frontPage(markuptest.Fill(head, text), nil, nil) },
		"profile": func(text string) templ.Component { return profilePage(markuptest.Fill(head, text), filled(text)) },
		"follow": func(text string) templ.Component {
			return followPage(markuptest.Fill(head, text), filled(text), text, text, text)
		},
		"asked": func(text string) templ.Component {
			return followPage(markuptest.Fill(head, text), filled(text), text, text, "")
		},
		"missing": func(text string) templ.Component { return missingPage(markuptest.Fill(head, text)) },
	} {
		rendered := func(text string) []string {
			t.Helper()
			var html strings.Builder
			if err := page(text).Render(t.Context(), &html); err != nil {
				t.Fatal(err)
			}
			skeleton, err := markuptest.Skeleton(html.String())
			if err != nil {
				t.Errorf("%s, %q: %v", name, text, err)
			}
			return skeleton
		}

		harmless := rendered("harmless")
		for _, text := range markuptest.Hostile {
			if got := rendered(text); !slices.Equal(got, harmless) {
				t.Errorf("%s, %q:\n%v, want\n%v", name, text, got, harmless)
			}
		}
	}
}
