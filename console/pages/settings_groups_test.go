package pages_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/inboxtest"
)

// TestSettingsAreFiveTabs: the settings have five tabs, each with the parts that belong together, and the former address of each part leads to it.
func TestSettingsAreFiveTabs(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	desk, admin := signIn(t, s, exchange.RoleRead), signIn(t, s, exchange.RoleAdmin)
	for path, parts := range map[string][]string{
		"": {"server", "nodes", "backlog"}, "/checks": {"doctor", "dns", "certificates"}, "/senders": {"lists", "limits"},
		"/records": {"audit"}, "/records?part=notices": {"notices"}, "/access": {"sessions"},
	} {
		page := desk.shows("/console/settings" + path)
		_, nav, _ := strings.Cut(page, `<nav class="tabs"`)
		nav, _, _ = strings.Cut(nav, "</nav>")
		if got := strings.Count(nav, "<a"); got != 5 || strings.Count(nav, `aria-current="page"`) != 1 {
			t.Errorf("%s has %d tabs: %s", path, got, nav)
		}
		for _, part := range parts {
			if strings.Count(page, `id="`+part+`"`) != 1 {
				t.Errorf("%s has no part %s", path, part)
			}
		}
		for _, found := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			if strings.Count(page, found[0]) > 1 {
				t.Errorf("%s has %s twice", path, found[0])
			}
		}
	}
	if page := admin.shows("/console/settings/access", "public_url"); !strings.Contains(page, `id="configuration"`) {
		t.Error("an administrator is not shown the configuration")
	}
	if status, _ := desk.get("/console/settings/records?part=limits"); status != http.StatusBadRequest {
		t.Errorf("a part of another group: %d", status)
	}

	admin.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for from, to := range map[string]string{
		"doctor": "/checks#doctor", "dns": "/checks#dns", "lists?list=allow": "/senders?list=allow#lists", "certificates": "/checks#certificates", "limits": "/senders#limits",
		"nodes": "#nodes", "backlog": "#backlog", "notices": "/records?part=notices", "audit?code=operator%3A%2A": "/records?code=operator%3A%2A&part=audit",
		"sessions": "/access#sessions", "configuration": "/access#configuration",
	} {
		response, err := admin.Get(s.URL + "/console/settings/" + from)
		status, _ := admin.read(response, err)
		if got := response.Header.Get("Location"); status != http.StatusPermanentRedirect || got != "/console/settings"+to {
			t.Errorf("%s leads to %q with %d", from, got, status)
		}
	}
}
