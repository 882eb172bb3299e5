package inbox_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/inboxtest"
)

// TestFederationPage: the page for administrators says what the settings say, NodeInfo, the actors and the profile name it, and the
// User-Agent of requests leads to it.
func TestFederationPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte(`[operator]
name = "Garden Club"
contact = "ops@garden.example"

[retention]
originals = "72h"

[federation]
host_concurrency = 3
host_rate = 7

[limits]
stop_words = ["basta"]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := inboxtest.New(t, file, "INBOX_SMTP_LISTEN=127.0.0.1:0", "INBOX_FEDERATION_ALLOW_PRIVATE=true").Serve()
	const home = "http://localhost:8080"

	status, header, page := s.Read(http.MethodGet, "/about/federation", "", "")
	if status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", status, header)
	}
	for _, want := range []string{
		"(+" + home + "/about/federation)", home + "/actor", "at most 3 deliveries at once and 7 new ones a second", "<dd>3 days</dd>", "at most 20, and at most 10 of one server",
		"“basta”", "#nobot", "Garden Club", "mailto:ops@garden.example", "mailto:postmaster@",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}

	activity := []string{"Accept", "application/activity+json"}
	for path, c := range map[string]struct {
		want   string
		header []string
	}{
		"/nodeinfo/2.0": {`"aboutFederation":"` + home + `/about/federation"`, nil},
		"/nodeinfo/2.1": {`"aboutFederation":"` + home + `/about/federation"`, nil},
		"/agents/echo":  {`<a href=\"` + home + `/about/federation\"`, activity},
		"/actor":        {`"url":"` + home + `/about/federation"`, activity},
		"/@echo":        {`href="/about/federation"`, []string{"Accept", "text/html"}},
	} {
		if _, _, text := s.Read(http.MethodGet, path, "", "", c.header...); !strings.Contains(text, c.want) {
			t.Errorf("%s lacks %s in %.3000s", path, c.want, text)
		}
	}
}
