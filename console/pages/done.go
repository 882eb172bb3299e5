package pages

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"
)

// doneCookie carries the words about what an act did to the page after it.
const doneCookie = "inbox-console-done"

// maxDoneBytes bounds those words.
const maxDoneBytes = 600

// done ends an act: the browser goes on to another page of the console, which begins with the words about what was done.
func (p *Pages) done(w http.ResponseWriter, r *http.Request, to, words string) error {
	if len(words) > maxDoneBytes {
		words = strings.ToValidUTF8(words[:maxDoneBytes], "") + " …"
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure where the console is reached by TLS
		Name: doneCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(words)), Path: Root, MaxAge: 60,
		HttpOnly: true, Secure: p.accounts.Secure(r), SameSite: http.SameSiteStrictMode,
	})
	p.work.forget()
	p.kept.forget()
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // a path of the console: see back
	return nil
}

// takeDone returns the words of the act before, once.
func takeDone(w http.ResponseWriter, r *http.Request) string {
	cookie, err := r.Cookie(doneCookie)
	if err != nil || len(cookie.Value) > 2*maxDoneBytes {
		return ""
	}
	http.SetCookie(w, &http.Cookie{Name: doneCookie, Path: Root, MaxAge: -1, HttpOnly: true}) //nolint:gosec // it removes the cookie

	words, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || !utf8.Valid(words) {
		return ""
	}
	return string(words)
}

// back returns the page from which a form came, for an act that can be begun on several: a path of the console, or fallback.
func back(r *http.Request, fallback string) string {
	to := r.PostFormValue("back")
	if to != Root && !strings.HasPrefix(to, Root+"/") && !strings.HasPrefix(to, Root+"?") || strings.ContainsAny(to, "\\\r\n") {
		return fallback
	}
	return to
}
