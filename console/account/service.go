package account

import (
	"errors"
	"net/http"
	"time"

	"inbox/exchange"
	"inbox/internal/capability"
	"inbox/internal/fault"
	"inbox/internal/openid"
)

// serviceLife is how long the way to the login service and back may take.
const serviceLife = 10 * time.Minute

// Purposes of what a sign-in at the login service sends with the browser.
const (
	purposeSignIn   = "sign-in to the console"
	purposeNonce    = "nonce of a sign-in to the console"
	purposeVerifier = "verifier of a sign-in to the console"
)

// serviceState travels through the login service. It is signed with the secret of a cookie, so that it is good in the browser that
// began and in no other, on every node, and nothing is stored. The owner of the browser can forge it: it says where to go on and
// nothing about who the operator is.
type serviceState struct {
	Next    string `json:"n"`
	Session string `json:"s,omitempty"` // that is confirmed; empty = one is begun
}

// once returns nonce and code verifier of an attempt.
func once(signed, binding string) (nonce, verifier string) {
	claim := func(purpose string) capability.Claim {
		return capability.Claim{Purpose: purpose, Who: bindingCookie, What: signed, Form: capability.Long}
	}
	return capability.Mint([]byte(binding), claim(purposeNonce)), capability.Mint([]byte(binding), claim(purposeVerifier))
}

// beginService sends the browser to the login service.
func (a *Accounts) beginService(w http.ResponseWriter, r *http.Request) {
	noStore(w)
	query := r.URL.Query()
	state := serviceState{Next: LocalPath(query.Get("next"), Home)}
	address := a.options.Service.AuthorizationURL
	if query.Get("again") != "" {
		s, ok := a.admit(w, r, exchange.RoleRead, state.Next)
		if !ok {
			return
		}
		state.Session, address = s.ID, a.options.Service.ReauthenticationURL
	}
	if wait := a.pace(r); wait > 0 {
		limited(w, wait)
		a.login(w, r, http.StatusTooManyRequests, LoginView{Next: state.Next, Failed: FailedLimit, Wait: wait})
		return
	}

	binding := newSecret()
	signed, err := capability.Sign([]byte(binding), purposeSignIn, bindingCookie, time.Now().Add(serviceLife), state)
	if err != nil {
		a.options.Pages.Failed(w, r, err)
		return
	}
	nonce, verifier := once(signed, binding)
	to, err := address(r.Context(), signed, nonce, verifier)
	if err != nil {
		a.serviceFailed(w, r, state, err)
		return
	}

	http.SetCookie(w, a.cookie(r, bindingCookie+openid.AttemptName(signed), binding, serviceLife))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// finishService takes the browser back from the login service. A return that belongs to no attempt of this browser changes nothing: it
// is an old tab, or someone else's.
func (a *Accounts) finishService(w http.ResponseWriter, r *http.Request) {
	noStore(w)
	back, err := openid.ReadReturn(r.URL.Query())
	if err != nil {
		a.strayReturn(w, r)
		return
	}

	name := bindingCookie + openid.AttemptName(back.State)
	binding := a.read(r, name)
	state, good := readState(back.State, binding)
	if binding != "" {
		http.SetCookie(w, a.cookie(r, name, "", 0))
	}
	if !good {
		a.strayReturn(w, r)
		return
	}

	state.Next = LocalPath(state.Next, Home)
	nonce, verifier := once(back.State, binding)
	proven, err := a.options.Service.Redeem(r.Context(), back, nonce, verifier)
	switch {
	case err != nil:
		a.serviceFailed(w, r, state, err)
	case state.Session != "":
		a.confirmByService(w, r, state, proven)
	default:
		a.beginByService(w, r, state, proven)
	}
}

// strayReturn answers a return that belongs to no attempt of the browser. A browser that is signed in goes on to the console.
func (a *Accounts) strayReturn(w http.ResponseWriter, r *http.Request) {
	signIns.WithLabelValues("refused").Inc()
	switch _, found, err := a.Session(r); {
	case err != nil:
		a.options.Pages.Failed(w, r, err)
	case found:
		http.Redirect(w, r, Home, http.StatusSeeOther)
	default:
		a.login(w, r, http.StatusUnauthorized, LoginView{Next: Home, Failed: FailedAttempt})
	}
}

// readState checks that a state was made for this browser, not long ago.
func readState(text, binding string) (state serviceState, good bool) {
	if binding == "" || len(text) > 2*maxLocalPath {
		return state, false
	}
	err := capability.Read([]byte(binding), purposeSignIn, bindingCookie, text, time.Now(), &state)
	return state, err == nil
}

// serviceFailed leads back to the page that led to the service.
func (a *Accounts) serviceFailed(w http.ResponseWriter, r *http.Request, state serviceState, err error) {
	status, failed, outcome := http.StatusUnauthorized, FailedRejected, "refused"
	switch {
	case errors.Is(err, openid.ErrTurnedBack):
		failed = FailedDeclined
	case fault.Is(err, fault.Unavailable):
		status, failed, outcome = http.StatusServiceUnavailable, FailedService, "failed"
	case !fault.Is(err, fault.Unauthenticated):
		signIns.WithLabelValues("failed").Inc()
		a.options.Pages.Failed(w, r, err)
		return
	}
	signIns.WithLabelValues(outcome).Inc()
	a.options.Logger.WarnContext(r.Context(), "a sign-in at the login service did not succeed", "service", a.options.Service.Name(), "error", err)
	a.failed(w, r, status, state, failed)
}

func (a *Accounts) failed(w http.ResponseWriter, r *http.Request, status int, state serviceState, failed Failure) {
	if state.Session == "" {
		a.login(w, r, status, LoginView{Next: state.Next, Failed: failed})
		return
	}
	if s, ok := a.admit(w, r, exchange.RoleRead, state.Next); ok {
		a.confirmPage(w, r, status, ConfirmView{Session: s, Next: state.Next, Failed: failed})
	}
}

// namesOf returns the names by which the settings may list an operator.
func namesOf(proven openid.Identity) []string {
	var names []string
	if proven.Email != "" {
		names = append(names, proven.Email)
	}
	for _, group := range proven.Groups {
		names = append(names, exchange.MemberGroup(group))
	}
	return names
}

func subjectOf(proven openid.Identity) string { return proven.Issuer + " " + proven.Subject }

// beginByService begins a session for an operator whom the settings list.
func (a *Accounts) beginByService(w http.ResponseWriter, r *http.Request, state serviceState, proven openid.Identity) {
	members := a.options.Rules().Named(namesOf(proven))
	if len(members) == 0 {
		signIns.WithLabelValues("refused").Inc()
		a.failed(w, r, http.StatusForbidden, state, FailedRole)
		return
	}

	name := proven.Email // with an @, which names of tokens cannot have
	if name == "" {
		name = "login:" + proven.Subject
	}
	now := time.Now()
	session := exchange.ConsoleSession{Name: name, Subject: subjectOf(proven), Members: members}
	if !proven.AuthenticatedAt.After(now) {
		session.ProvenAt = proven.AuthenticatedAt
	}
	if err := a.begin(w, r, session, now); err != nil {
		signIns.WithLabelValues("failed").Inc()
		a.options.Pages.Failed(w, r, err)
		return
	}
	signIns.WithLabelValues("service").Inc()
	http.Redirect(w, r, state.Next, http.StatusSeeOther)
}

// confirmByService takes a proof of the person whose session it is, when the service made them prove it just now.
func (a *Accounts) confirmByService(w http.ResponseWriter, r *http.Request, state serviceState, proven openid.Identity) {
	s, ok := a.admit(w, r, exchange.RoleRead, state.Next)
	if !ok {
		return
	}

	now := time.Now()
	same := s.ID == state.Session && s.Owner.Subject == subjectOf(proven)
	if !same || now.Sub(proven.AuthenticatedAt) > Fresh {
		a.failed(w, r, http.StatusForbidden, state, FailedOther)
		return
	}
	if proven.AuthenticatedAt.After(now) { // its clock is ahead
		proven.AuthenticatedAt = now
	}
	if err := a.options.Sessions.ProveConsoleSession(r.Context(), s.ID, proven.AuthenticatedAt, a.options.Rules().Named(namesOf(proven))); err != nil {
		a.options.Pages.Failed(w, r, err)
		return
	}
	http.Redirect(w, r, state.Next, http.StatusSeeOther)
}
