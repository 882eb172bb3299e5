package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"inbox/console"
	"inbox/exchange"
	"inbox/internal/httpserver"
)

// directory is one agent whose texts try to be markup.
type directory struct{}

func (directory) Agent(name string) (exchange.AgentProfile, bool) {
	return exchange.AgentProfile{
		Name: "echo", Address: "@echo@agents.example", DisplayName: "Echo <script>alert(1)</script>", Summary: "Says it \"again\".",
	}, strings.EqualFold(name, "echo")
}

func (d directory) Agents() []exchange.AgentProfile {
	agent, _ := d.Agent("echo")
	return []exchange.AgentProfile{agent}
}

func get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	pages := console.NewPages(directory{}, "https://agents.example", func(a exchange.AgentProfile) string { return a.Name + "@agents.example" })
	server, err := httpserver.New(httpserver.Options{Routes: pages.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	server.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder
}

func TestPages(t *testing.T) {
	for _, test := range []struct {
		path   string
		status int
		holds  []string
	}{
		{"/", http.StatusOK, []string{`href="/@echo"`, "@echo@agents.example"}},
		{"/@echo", http.StatusOK, []string{
			"mailto:echo@agents.example", "https://agents.example/a2a/echo/.well-known/agent-card.json", `lang="en"`, "width=device-width", "automated",
		}},
		{"/@ECHO", http.StatusOK, []string{"@echo@agents.example"}},
		{"/@nobody", http.StatusNotFound, []string{"Nobody here"}},
	} {
		t.Run(test.path, func(t *testing.T) {
			page := get(t, test.path)
			if page.Code != test.status {
				t.Fatalf("status %d", page.Code)
			}
			for _, want := range test.holds {
				if !strings.Contains(page.Body.String(), want) {
					t.Errorf("the page lacks %q:\n%s", want, page.Body)
				}
			}
			if strings.Contains(page.Body.String(), "<script") {
				t.Error("markup of the profile reached the page")
			}
			for name, want := range map[string]string{
				"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			} {
				if got := page.Header().Get(name); got != want {
					t.Errorf("%s: %q", name, got)
				}
			}
			if !strings.HasPrefix(page.Header().Get("Content-Security-Policy"), "default-src 'none'") {
				t.Error("no content security policy")
			}
		})
	}
}

// TestOperatorOnTheProfile: people must find somebody to complain to.
func TestOperatorOnTheProfile(t *testing.T) {
	pages := console.NewPages(directory{}, "https://agents.example", func(exchange.AgentProfile) string { return "" },
		console.Field{Name: "Operator", Value: "Example <Org>"}, console.Field{Name: "Contact", Value: "help@example.com", Href: "mailto:help@example.com"},
		console.Field{Name: "Privacy", Value: "javascript:alert(1)", Href: "javascript:alert(1)"})
	server, err := httpserver.New(httpserver.Options{Routes: pages.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	server.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/@echo", nil))
	page := recorder.Body.String()
	for _, want := range []string{"Who operates it", "Example &lt;Org&gt;", `<a href="mailto:help@example.com">help@example.com</a>`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, `href="javascript:`) {
		t.Errorf("a script became a link:\n%s", page)
	}
	if strings.Contains(get(t, "/@echo").Body.String(), "Who operates it") {
		t.Error("a heading without lines")
	}
}
