package pages_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/operator"
)

// TestLive: a page that is open hears of new messages by their number alone, and of nothing once its session has ended.
func TestLive(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	desk, admin := overviewSignIn(s, exchange.RoleRead), overviewSignIn(s, exchange.RoleAdmin)
	if response, err := desk.browser.Get(s.URL + "/console/live?after=now"); err != nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("%v, %v: after is no number", response, err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/console/live?after=0", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	if response, err := http.DefaultClient.Do(request); err != nil || response.StatusCode != http.StatusUnauthorized {
		t.Fatalf("%v, %v: a stranger is told", response, err)
	}

	response, err := desk.browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s", response.StatusCode, kind)
	}

	lines := bufio.NewScanner(response.Body)
	overviewInsert(s, exchange.StateHeld)
	for told := false; !told && lines.Scan(); {
		if told = lines.Text() == "event: arrived"; !told && strings.Contains(lines.Text(), "hello") {
			t.Errorf("a stream says what a message says: %s", lines.Text())
		}
	}
	if !lines.Scan() || lines.Text() != "data: 1" {
		t.Fatalf("%q, %v: the stream does not say that the first message came", lines.Text(), lines.Err())
	}

	sessions, err := s.Operator().Sessions.List(t.Context(), exchange.ConsoleSessionFilter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range sessions {
		if one.Role == exchange.RoleRead {
			admin.post("/console/settings/sessions/end", "session", one.ID)
		}
	}
	overviewInsert(s, exchange.StateHeld)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event:") {
			t.Error("a session that has ended is told of a message")
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream breaks off: %v", err)
	}
}

// TestLiveSaysThatTheServerStops: the last event of an open page is not an end without words.
func TestLiveSaysThatTheServerStops(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	desk := overviewSignIn(s, exchange.RoleRead)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/console/live?after=0", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	response, err := desk.browser.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	defer func() { _ = response.Body.Close() }()

	token, err := os.ReadFile(filepath.Join(s.Config().DataDir, operator.AdminTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, said := s.Read(http.MethodPost, "/api/v1/stop", strings.TrimSpace(string(token)), ""); status/100 != 2 {
		t.Fatal(status, said)
	}
	read, err := io.ReadAll(response.Body)
	if err != nil || !strings.HasSuffix(string(read), "event: stopping\nretry: 1000\ndata: {\"reason\":\"server_stopping\"}\n\n") {
		t.Errorf("the stream ends with %q, %v", read, err)
	}
}
