package pages_test

import (
	"net/http"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/inboxtest"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	reader, admin := overviewSignIn(s, exchange.RoleRead), overviewSignIn(s, exchange.RoleAdmin)

	for _, path := range []string{"", "/doctor", "/dns", "/lists", "/lists?list=allow", "/lists?list=stop", "/notices", "/audit", "/sessions"} {
		reader.get("/console/settings"+path, `aria-current="page"`)
	}
	for path, want := range map[string]string{"": "/console/settings/pause", "/lists": "/console/settings/lists/add", "/doctor": "Look now", "/notices": "Send a test"} {
		admin.get("/console/settings"+path, want)
		if strings.Contains(reader.get("/console/settings"+path), want) {
			t.Errorf("a reader is offered %s", want)
		}
	}
	admin.get("/console/settings/configuration", "public_url")

	// The one who only reads changes nothing.
	for _, path := range []string{"pause", "resume", "reload", "doctor", "lists/add", "lists/remove", "notices/test"} {
		if status, _ := reader.post("/console/settings/"+path, "list", "block", "target", "spam.example"); status != http.StatusForbidden {
			t.Errorf("%s is open to a reader: %d", path, status)
		}
	}
	if response, err := reader.browser.Get(s.URL + "/console/settings/configuration"); err != nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %v: the configuration is open to a reader", response, err)
	}
	if found, err := s.Operator().Lists.Entries(t.Context(), exchange.ListFilter{Limit: 1}); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestSettingsAct(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	admin := overviewSignIn(s, exchange.RoleAdmin)

	act := func(want, path string, pairs ...string) {
		t.Helper()
		if status, page := admin.post("/console/settings/"+path, pairs...); status != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: %d without %q: %s", path, status, want, page)
		}
	}
	act("All agents rest", "pause", "reason", `<b>moving</b> "house"`)
	admin.get("/console/overview", "All agents rest")
	admin.get("/console/settings", "&lt;b&gt;moving")
	act("The agents work again.", "resume")

	act("spam.example is on the list.", "lists/add", "list", "block", "target", "spam.example", "effect", "hold", "reason", "<script>x</script>\u202e")
	page := admin.get("/console/settings/lists", "spam.example", "&lt;script&gt;x", "[U+202E]")
	if strings.Contains(page, "<script>x") {
		t.Error("a reason became markup")
	}
	act("spam.example is off the list.", "lists/remove", "list", "block", "target", "spam.example")
	if status, _ := admin.post("/console/settings/lists/remove", "list", "pause", "target", "*"); status != http.StatusBadRequest {
		t.Errorf("a pause is taken off as if it were an entry of a list: %d", status)
	}

	admin.get("/console/settings/audit?code=operator:*", "operator:", "/console/settings/lists/add")
	if page := admin.get("/console/settings/audit?code=nothing"); !strings.Contains(page, "Nothing matches") {
		t.Error("the filter of the audit log filters nothing")
	}
}

// TestSettingsSessions: everybody ends their own sessions, administrators all.
func TestSettingsSessions(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	reader, admin := overviewSignIn(s, exchange.RoleRead), overviewSignIn(s, exchange.RoleAdmin)

	id := func(role string) string {
		t.Helper()
		all, err := s.Operator().Sessions.List(t.Context(), exchange.ConsoleSessionFilter{Limit: 10})
		if err != nil || len(all) != 2 {
			t.Fatal(len(all), err)
		}
		for _, one := range all {
			if one.Role.String() == role {
				return one.ID
			}
		}
		t.Fatalf("no session that may %s", role)
		return ""
	}
	if page := reader.get("/console/settings/sessions"); strings.Contains(page, "desk-admin") {
		t.Error("a reader sees the sessions of others")
	}
	if status, _ := reader.post("/console/settings/sessions/end", "session", id("admin")); status != http.StatusNotFound {
		t.Errorf("a reader ends the session of another: %d", status)
	}
	if status, page := admin.post("/console/settings/sessions/end", "session", id("read")); status != http.StatusOK || !strings.Contains(page, "The browser is signed out.") {
		t.Errorf("%d %s", status, page)
	}
	if response, err := reader.browser.Get(s.URL + "/console"); err != nil || !strings.Contains(response.Request.URL.Path, "login") {
		t.Errorf("%v, %v: the session is not over", response, err)
	}
}
