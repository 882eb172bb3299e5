package account

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// showLogin answers with the page to sign in; who is signed in goes on.
func (a *Accounts) showLogin(w http.ResponseWriter, r *http.Request) {
	noStore(w)
	next := LocalPath(r.URL.Query().Get("next"), Home)
	switch _, found, err := a.Session(r); {
	case err != nil:
		a.options.Pages.Failed(w, r, err)
	case found:
		http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // LocalPath lets pages of the console through alone
	default:
		a.login(w, r, http.StatusOK, LoginView{Next: next})
	}
}

// login draws the page to sign in.
func (a *Accounts) login(w http.ResponseWriter, r *http.Request, status int, view LoginView) {
	view.Service, view.ServiceURL = a.service(view.Next, false)
	a.options.Pages.Login(w, r, status, view)
}

// service returns the name of the login service and the link there.
func (a *Accounts) service(next string, again bool) (name, link string) {
	if a.options.Service == nil {
		return "", ""
	}
	query := url.Values{"next": {next}}
	if again {
		query.Set("again", "1")
	}
	return a.options.Service.Name(), ServicePath + "?" + query.Encode()
}

// signIn begins a session by a token. Every token that opens nothing here is refused with the same words.
func (a *Accounts) signIn(w http.ResponseWriter, r *http.Request) {
	noStore(w)
	if a.origin.Check(r) != nil {
		a.login(w, r, http.StatusForbidden, LoginView{Next: Home, Failed: FailedOrigin})
		return
	}
	if wait := a.pace(r); wait > 0 {
		limited(w, wait)
		a.login(w, r, http.StatusTooManyRequests, LoginView{Next: Home, Failed: FailedLimit, Wait: wait})
		return
	}
	if err := parseForm(w, r, maxLoginForm); err != nil {
		a.options.Pages.Failed(w, r, err)
		return
	}

	next := LocalPath(r.PostFormValue("next"), Home)
	token, good, err := a.token(r)
	if err == nil && !good {
		signIns.WithLabelValues("refused").Inc()
		a.login(w, r, http.StatusUnauthorized, LoginView{Next: next, Failed: FailedProof})
		return
	}

	now := time.Now()
	if err == nil {
		err = a.begin(w, r, exchange.ConsoleSession{Name: token.Name, Token: &token, ProvenAt: now}, now)
	}
	if err != nil {
		signIns.WithLabelValues("failed").Inc()
		a.options.Pages.Failed(w, r, err)
		return
	}
	signIns.WithLabelValues("token").Inc()
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // LocalPath lets pages of the console through alone
}

// pace counts an attempt and returns how long the client has to wait.
func (a *Accounts) pace(r *http.Request) time.Duration {
	wait := a.options.Pace(httpserver.ClientIP(r))
	if wait > 0 {
		signIns.WithLabelValues("limited").Inc()
	}
	return wait
}

// limited writes when to come again.
func limited(w http.ResponseWriter, wait time.Duration) {
	httpserver.SetRetry(w.Header(), &fault.Fault{Kind: fault.RateLimited, RetryAfter: wait})
}

// token finds the operator's token that a form shows.
func (a *Accounts) token(r *http.Request) (exchange.Token, bool, error) {
	shown := strings.TrimSpace(r.PostFormValue("token"))
	if shown == "" || len(shown) > bearer.MaxBytes {
		return exchange.Token{}, false, nil
	}
	token, found, err := a.options.Tokens.TokenByHash(r.Context(), bearer.Hash(shown))
	return token, found && token.Valid(time.Now()) && token.Role() > exchange.RoleNone, err
}

// begin stores a session and gives the browser its cookie. A session that the browser had before ends.
func (a *Accounts) begin(w http.ResponseWriter, r *http.Request, session exchange.ConsoleSession, now time.Time) error {
	if err := a.endCurrent(r); err != nil {
		return err
	}

	secret := newSecret()
	session.ID, session.Hash = uuid.Must(uuid.NewV7()).String(), hashed(secret)
	session.CreatedAt, session.SeenAt, session.ExpiresAt = now, now, now.Add(a.options.Lifetime)
	session.Agent = r.UserAgent()
	if client := httpserver.ClientIP(r); client.IsValid() {
		session.Address = client.String()
	}

	act := exchange.AuditRecord{Code: exchange.AuditOperator + "signed_in", Principal: exchange.OperatorPrincipal(session.Name), Detail: "session " + session.ID}
	if err := a.options.Audit.Audit(r.Context(), act); err != nil {
		return err
	}
	if err := a.options.Sessions.CreateConsoleSession(r.Context(), session, maxSessions); err != nil {
		return err
	}
	http.SetCookie(w, a.cookie(r, sessionCookie, secret, a.options.Lifetime))
	return nil
}

// endCurrent ends the session of the browser, also one that opens nothing any more.
func (a *Accounts) endCurrent(r *http.Request) error {
	secret := a.readSecret(r)
	if secret == "" {
		return nil
	}
	current, found, err := a.options.Sessions.ConsoleSession(r.Context(), hashed(secret))
	if err != nil || !found {
		return err
	}
	return a.end(r.Context(), current.ID)
}

// end ends a session; one that is over already is no error.
func (a *Accounts) end(ctx context.Context, id string) error {
	if err := a.options.Sessions.EndConsoleSession(ctx, id, exchange.SessionOwner{}); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// signOut ends the session of the browser, and sends a browser that signed in at the login service there to end its session with that.
func (a *Accounts) signOut(w http.ResponseWriter, r *http.Request, s Session) {
	if err := a.end(r.Context(), s.ID); err != nil {
		a.options.Pages.Failed(w, r, err)
		return
	}
	http.SetCookie(w, a.cookie(r, sessionCookie, "", 0))

	to := ""
	if !s.ByToken() && a.options.Service != nil {
		to = a.options.Service.LogoutURL(r.Context())
	}
	switch {
	case to == "":
		http.Redirect(w, r, LoginPath, http.StatusSeeOther)
	case strings.HasPrefix(to, a.FormOrigin()+"/"):
		http.Redirect(w, r, to, http.StatusSeeOther)
	default: // browsers follow no form to a place that the page of the form did not name (Content Security Policy 3, form-action)
		a.login(w, r, http.StatusOK, LoginView{Next: Home, LogoutURL: to})
	}
}

func (a *Accounts) showConfirm(w http.ResponseWriter, r *http.Request, s Session) {
	a.confirmPage(w, r, http.StatusOK, ConfirmView{Session: s, Next: LocalPath(r.URL.Query().Get("next"), Home)})
}

func (a *Accounts) confirmPage(w http.ResponseWriter, r *http.Request, status int, view ConfirmView) {
	if !view.Session.ByToken() {
		view.Service, view.ServiceURL = a.service(view.Next, true)
	}
	a.options.Pages.Confirm(w, r, status, view)
}

// confirm takes the token that began the session once more.
func (a *Accounts) confirm(w http.ResponseWriter, r *http.Request, s Session) {
	view := ConfirmView{Session: s, Next: LocalPath(r.PostFormValue("next"), Home)}
	if view.Wait = a.pace(r); view.Wait > 0 {
		limited(w, view.Wait)
		view.Failed = FailedLimit
		a.confirmPage(w, r, http.StatusTooManyRequests, view)
		return
	}

	token, good, err := a.token(r)
	if err == nil && (!good || token.ID != s.Owner.TokenID) {
		view.Failed = FailedProof
		a.confirmPage(w, r, http.StatusUnauthorized, view)
		return
	}
	if err == nil {
		err = a.options.Sessions.ProveConsoleSession(r.Context(), s.ID, time.Now(), nil)
	}
	if err != nil {
		a.options.Pages.Failed(w, r, err)
		return
	}
	http.Redirect(w, r, view.Next, http.StatusSeeOther)
}
