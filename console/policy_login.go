package console

import (
	"net/http"
	"strings"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

const (
	loginCookie  = "inbox_login"
	loginSeconds = 10 * 60
)

// beginLogin sends the browser to the login service. The cookie binds the way back to this browser, so that no one can
// finish a login that another person began.
func (p *PolicyPages) beginLogin(w http.ResponseWriter, r *http.Request, state, login string) {
	redirect, binding, err := p.demands.BeginLogin(r.Context(), state, login)
	if err != nil {
		p.fail(w, r, Demand{}, err)
		return
	}
	http.SetCookie(w, p.cookie(binding, loginSeconds))
	w.Header().Set("Location", redirect)
	w.WriteHeader(http.StatusSeeOther)
}

// cookie is Lax and not Strict, because the login service brings the browser back from another site.
func (p *PolicyPages) cookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // not Secure on plain http, where a browser would drop it: development only
		Name: loginCookie, Value: value, Path: "/policy/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(p.publicURL, "https://"),
	}
}

// callback is where a login service sends the browser back (OpenID Connect Core section 3.1.2.5). Unlike other GETs it
// decides something, but only with the cookie of the browser that began the login: a scanner does not have it.
func (p *PolicyPages) callback(w http.ResponseWriter, r *http.Request) {
	guard(w)
	query := r.URL.Query()
	cookie, err := r.Cookie(loginCookie)
	switch {
	case err != nil || cookie.Value == "":
		err = fault.New(fault.Forbidden, "this browser did not begin a login here, or it took too long; open the link of the message again")
	case query.Get("state") == "" || query.Get("code") == "" && query.Get("error") == "":
		err = fault.New(fault.Malformed, "the login service sent back an incomplete address; open the link of the message again")
	}
	if cookie != nil {
		http.SetCookie(w, p.cookie("", -1))
	}
	if err != nil {
		p.fail(w, r, Demand{}, err)
		return
	}
	code := query.Get("code")
	if query.Get("error") != "" {
		code = "" // RFC 6749 section 4.1.2.1: never beside a code
	}
	demand, err := p.demands.FinishLogin(r.Context(), query.Get("state"), code, cookie.Value)
	p.settled(w, r, p.completed(demand, ""), err)
}

func (p *PolicyPages) callbackHead(w http.ResponseWriter, _ *http.Request) {
	guard(w)
	w.Header().Set("Allow", http.MethodGet)
	httpserver.WriteJSON(w, http.StatusMethodNotAllowed, httpserver.ErrorBody{Error: httpserver.ErrorDetail{
		Code: "method_not_allowed", Message: "this address takes GET",
	}})
}
