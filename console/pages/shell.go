package pages

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/catalog"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// Sections of the navigation.
const (
	sectionOverview = "overview"
	sectionInbox    = "inbox"
	sectionWork     = "work"
	sectionAgents   = "agents"
	sectionSettings = "settings"
)

func (v shellView) entries(ctx context.Context) []entry {
	work := v.Work.Failed + v.Work.Deliveries + v.Work.Jobs + v.Work.Held + v.Work.Approvals
	return []entry{
		{section: sectionInbox, path: at("inbox"), icon: "inbox", label: text(ctx, "Inbox"), waiting: int64(v.Unread.Conversations), more: v.Unread.Partial()},
		{section: sectionWork, path: at("work"), icon: "work", label: text(ctx, "Work"), waiting: work},
		{section: sectionOverview, path: at("overview"), icon: "overview", label: text(ctx, "Overview")},
		{section: sectionAgents, path: at("agents"), icon: "agents", label: text(ctx, "Agents")},
		{section: sectionSettings, path: at("settings"), icon: "settings", label: text(ctx, "Settings")},
	}
}

func roleName(ctx context.Context, role exchange.Role) string {
	switch role {
	case exchange.RoleAdmin:
		return text(ctx, "administers")
	case exchange.RoleWork:
		return text(ctx, "works")
	}
	return text(ctx, "reads")
}

// languageName is how a language calls itself.
func languageName(tag string) string {
	if tag == "de" {
		return "Deutsch"
	}
	return "English"
}

// languageRoute keeps the language in which an operator reads, as a choice of the browser.
func (p *Pages) languageRoute() httpserver.Route {
	return p.act(exchange.RoleRead, at("language"), false, func(w http.ResponseWriter, r *http.Request, _ account.Session) error {
		language := r.PostFormValue("language")
		if !slices.Contains(catalog.Languages(), language) {
			return fault.InField("language", "is none in which the console speaks")
		}
		http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure where the console is reached by TLS
			Name: catalog.Cookie, Value: language, Path: "/", MaxAge: 365 * 24 * 60 * 60, HttpOnly: true, Secure: p.accounts.Secure(r), SameSite: http.SameSiteLaxMode,
		})
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, back(r, Root), http.StatusSeeOther) //nolint:gosec // a path of the console: see back
		return nil
	})
}

// protect keeps a page to what comes from this server: no script, style, picture or frame of others, and none written in the page.
// Forms lead here and to one more origin, empty = none.
func protect(header http.Header, forms string) {
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action "+strings.TrimSpace("'self' "+forms)+"; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
}
