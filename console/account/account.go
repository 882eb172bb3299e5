// Package account says who may use the operator's console: sessions of browsers, signing in by a token of the operator or at a login
// service, what each role may open, protection of forms against other sites, and a fresh proof before dangerous acts. It draws no page
// and knows no act; pages hand their handlers to it. The operator API, whose callers show a token with each request, is not here.
package account

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/capability"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/openid"
)

var signIns = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_console_sign_ins_total",
	Help: "Attempts to sign in at the console, by outcome (token, service, refused, limited, failed).",
}, []string{"outcome"})

// Session is one browser in which an operator is signed in.
type Session struct {
	ID   string // UUIDv7, not secret
	Name string // of the token, or the verified address at the login service
	Role exchange.Role
	CSRF string // goes into every form as the field csrf, or into the header X-CSRF-Token

	CreatedAt time.Time
	ExpiresAt time.Time
	ProvenAt  time.Time // when the operator proved last who they are; zero = a login service did not say

	Address string // of the browser at sign-in
	Agent   string // the browser, by its own words

	Owner exchange.SessionOwner // who began it: all sessions of one owner are the same person's

	record exchange.ConsoleSession
}

// By is the operator in records of the audit trail and timelines.
func (s Session) By() string { return exchange.OperatorPrincipal(s.Name) }

// ByToken reports whether a token began the session, and not a login service.
func (s Session) ByToken() bool { return s.record.Token != nil }

// Token is what began the session, as the operator API would know its caller. For a session of a login service it is a token with
// the session's role, whose secret does not exist.
func (s Session) Token() exchange.Token {
	if s.record.Token != nil {
		return *s.record.Token
	}
	sum := sha256.Sum256([]byte(s.Owner.Subject))
	return exchange.Token{ID: "login-" + base64.RawURLEncoding.EncodeToString(sum[:18]), Name: s.Name, Scope: s.Role.String(), CreatedAt: s.CreatedAt}
}

// Handler answers a request of an operator whose session and role allow it.
type Handler func(w http.ResponseWriter, r *http.Request, s Session)

// Sessions keeps sessions. A session that is over may be found; it opens nothing.
type Sessions interface {
	// CreateConsoleSession stores a session and ends the oldest of its owner beyond most.
	CreateConsoleSession(ctx context.Context, session exchange.ConsoleSession, most int) error
	ConsoleSession(ctx context.Context, hash string) (exchange.ConsoleSession, bool, error)
	SeeConsoleSession(ctx context.Context, id string, at time.Time) error
	ProveConsoleSession(ctx context.Context, id string, at time.Time, members []string) error
	// EndConsoleSession ends one; fault.NotFound when there is none.
	EndConsoleSession(ctx context.Context, id string, owner exchange.SessionOwner) error
}

// Audit keeps what operators did.
type Audit interface {
	Audit(ctx context.Context, record exchange.AuditRecord) error
}

// Service is where operators sign in elsewhere; *openid.Provider is one. Its errors are fault.Unauthenticated and fault.Unavailable.
type Service interface {
	Name() string
	AuthorizationURL(ctx context.Context, state, nonce, verifier string) (string, error)
	ReauthenticationURL(ctx context.Context, state, nonce, verifier string) (string, error)
	Redeem(ctx context.Context, back openid.Return, nonce, verifier string) (openid.Identity, error)
	// LogoutURL is where the browser's session with the service ends; empty = the service says no such place, or is down.
	LogoutURL(ctx context.Context) string
	// Origin is scheme and host of the service.
	Origin() string
}

// Pages draw what this package has to say. They write status and body.
type Pages interface {
	Login(w http.ResponseWriter, r *http.Request, status int, view LoginView)
	Confirm(w http.ResponseWriter, r *http.Request, status int, view ConfirmView)
	Forbidden(w http.ResponseWriter, r *http.Request, status int, view ForbiddenView)
	// Failed is for what cannot be answered now: the database or the like.
	Failed(w http.ResponseWriter, r *http.Request, err error)
}

// Failure says why a sign-in or a proof did not succeed.
type Failure string

// Failures; empty = none so far.
const (
	FailedProof    Failure = "proof"    // the token is not good; more is not told
	FailedRole     Failure = "role"     // the login service knows the person, the settings do not let them in
	FailedLimit    Failure = "limit"    // too many attempts from the network of the browser
	FailedService  Failure = "service"  // the login service cannot be reached
	FailedDeclined Failure = "declined" // the person turned back at the login service, or it did not let them in
	FailedRejected Failure = "rejected" // what the login service said is not good
	FailedAttempt  Failure = "attempt"  // the attempt was begun in another browser, took too long, or has ended
	FailedOther    Failure = "other"    // another person, or no fresh proof: only when confirming
	FailedOrigin   Failure = "origin"   // the form came from another site
)

// LoginView is the page to sign in: a form that posts the fields token and next to LoginPath.
type LoginView struct {
	Next    string // local path to go to afterwards, for the hidden field next
	Failed  Failure
	Wait    time.Duration // with FailedLimit
	Service string        // name of the login service; empty = there is none
	// ServiceURL is the link to sign in there.
	ServiceURL string
	// LogoutURL is the link to sign out there, after signing out here; empty = the browser need not go there.
	LogoutURL string
}

// ConfirmView is the page that asks for a fresh proof: with Session.ByToken a form that posts token, next and csrf to ConfirmPath,
// otherwise the link ServiceURL.
type ConfirmView struct {
	Session    Session
	Next       string
	Failed     Failure
	Wait       time.Duration
	Service    string
	ServiceURL string
}

// Refusal says why an operator who is signed in is refused.
type Refusal string

// Refusals.
const (
	RefusedRole   Refusal = "role"   // it needs a larger role
	RefusedForm   Refusal = "form"   // the form is of an earlier session, or not of ours: load the page again
	RefusedOrigin Refusal = "origin" // the form came from another site
)

// ForbiddenView is the page that says so.
type ForbiddenView struct {
	Session Session // of role RoleNone when the browser was not looked up
	Why     Refusal
	Needed  exchange.Role // with RefusedRole
	Back    string        // local path where the form was
}

// Paths of this package. Handlers of pages need LoginPath for no one: Page and Act send browsers there.
const (
	Home        = "/console"
	LoginPath   = "/console/login"
	ServicePath = "/console/login/service"
	ReturnPath  = "/console/login/return" // where the login service sends browsers back to
	LogoutPath  = "/console/logout"       // takes a form with csrf
	ConfirmPath = "/console/confirm"
)

const (
	// Fresh is how long a proof is good for dangerous acts.
	Fresh = 10 * time.Minute

	seenEvery   = time.Minute // how exactly it is kept when a browser was seen
	maxSessions = 50          // of one owner

	maxLoginForm = 16 << 10
	maxActForm   = 8 << 20
)

// Options configure Accounts. Service, Pace and Logger may be left out.
type Options struct {
	Sessions Sessions
	Tokens   exchange.Tokens
	Audit    Audit
	Pages    Pages
	Rules    func() exchange.ConsoleRules // in force
	Lifetime time.Duration                // of a session
	URL      *url.URL                     // where browsers usually reach the console
	Service  Service                      // nil = tokens only
	// Pace counts an attempt to sign in and returns how long the client has to wait; nil = no limit.
	Pace   func(client netip.Addr) time.Duration
	Logger *slog.Logger
}

// Accounts let operators in.
type Accounts struct {
	options Options
	origin  *http.CrossOriginProtection
}

// New makes Accounts.
func New(options Options) (*Accounts, error) {
	if options.Sessions == nil || options.Tokens == nil || options.Audit == nil || options.Pages == nil || options.Rules == nil || options.URL == nil || options.Lifetime <= 0 {
		return nil, errors.New("accounts need sessions, tokens, an audit trail, pages, rules, an address and a lifetime of sessions")
	}
	if options.Pace == nil {
		options.Pace = func(netip.Addr) time.Duration { return 0 }
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	for _, outcome := range []string{"token", "service", "refused", "limited", "failed"} {
		signIns.WithLabelValues(outcome)
	}

	// A proxy may pass another Host on than the browser used, which matters to browsers without Sec-Fetch-Site.
	origin := http.NewCrossOriginProtection()
	if err := origin.AddTrustedOrigin(options.URL.Scheme + "://" + options.URL.Host); err != nil {
		return nil, err
	}
	return &Accounts{options, origin}, nil
}

// Routes are the addresses for signing in and out.
func (a *Accounts) Routes() []httpserver.Route {
	routes := []httpserver.Route{
		{Method: http.MethodGet, Pattern: LoginPath, Handler: http.HandlerFunc(a.showLogin)},
		{Method: http.MethodPost, Pattern: LoginPath, Handler: http.HandlerFunc(a.signIn)},
		{Method: http.MethodPost, Pattern: LogoutPath, Handler: a.Act(exchange.RoleRead, false, a.signOut)},
		{Method: http.MethodGet, Pattern: ConfirmPath, Handler: a.Page(exchange.RoleRead, a.showConfirm)},
		{Method: http.MethodPost, Pattern: ConfirmPath, Handler: a.Act(exchange.RoleRead, false, a.confirm)},
	}
	if a.options.Service != nil {
		routes = append(routes,
			httpserver.Route{Method: http.MethodGet, Pattern: ServicePath, Handler: http.HandlerFunc(a.beginService)},
			httpserver.Route{Method: http.MethodGet, Pattern: ReturnPath, Handler: http.HandlerFunc(a.finishService)},
		)
	}
	return routes
}

// FormOrigin is where a form of the console may lead beside the console itself: signing out goes on at the login service. Empty without one.
func (a *Accounts) FormOrigin() string {
	if a.options.Service == nil {
		return ""
	}
	return a.options.Service.Origin()
}

// Session returns the session of a request's browser; false without one that is good now. Errors are those of the store.
func (a *Accounts) Session(r *http.Request) (Session, bool, error) {
	secret := a.readSecret(r)
	if secret == "" {
		return Session{}, false, nil
	}

	record, found, err := a.options.Sessions.ConsoleSession(r.Context(), hashed(secret))
	if err != nil || !found {
		return Session{}, false, err
	}

	now := time.Now()
	role := a.options.Rules().Role(record, now)
	if role == exchange.RoleNone {
		return Session{}, false, nil
	}

	if now.Sub(record.SeenAt) >= seenEvery {
		if err := a.options.Sessions.SeeConsoleSession(r.Context(), record.ID, now); err != nil {
			a.options.Logger.WarnContext(r.Context(), "a session of the console may end too early", "session", record.ID, "error", err)
		}
	}

	return Session{
		ID: record.ID, Name: record.Name, Role: role, CSRF: capability.Mint([]byte(secret), formClaim(record.ID)),
		CreatedAt: record.CreatedAt, ExpiresAt: record.ExpiresAt, ProvenAt: record.ProvenAt,
		Address: record.Address, Agent: record.Agent, Owner: record.Owner(), record: record,
	}, true, nil
}

// Page lets those who have the role, or a larger one, look at a page. Others are sent to sign in, or told that they may not.
func (a *Accounts) Page(role exchange.Role, handle Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, ok := a.admit(w, r, role, r.URL.RequestURI()); ok {
			handle(w, r, s)
		}
	})
}

// Act lets those who have the role do what a form posts: from a page of ours, with the session's token against forgery as the field csrf
// or the header X-CSRF-Token. A dangerous act needs a proof of the last ten minutes: without one the browser is sent to ConfirmPath, and
// from there back to the page of the form, which it fills in again. The page is that of the field back, or of Referer. The form has
// been parsed when handle runs; it may have 8 MiB. The audit trail has the act before handle runs.
func (a *Accounts) Act(role exchange.Role, dangerous bool, handle Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noStore(w)
		if a.origin.Check(r) != nil {
			a.options.Pages.Forbidden(w, r, http.StatusForbidden, ForbiddenView{Why: RefusedOrigin, Back: Home})
			return
		}

		s, ok := a.admit(w, r, role, backFromReferer(r))
		if !ok {
			return
		}

		if err := parseForm(w, r, maxActForm); err != nil {
			a.options.Pages.Failed(w, r, err)
			return
		}
		back := LocalPath(r.PostFormValue("back"), backFromReferer(r))
		if !sameText(s.CSRF, r.Header.Get("X-CSRF-Token")) && !sameText(s.CSRF, r.PostFormValue("csrf")) {
			a.options.Pages.Forbidden(w, r, http.StatusForbidden, ForbiddenView{Session: s, Why: RefusedForm, Back: back})
			return
		}

		if dangerous && time.Since(s.ProvenAt) > Fresh {
			send(w, r, ConfirmPath+"?next="+url.QueryEscape(back))
			return
		}

		if err := a.options.Audit.Audit(r.Context(), exchange.OperatorAct(s.By(), r.Method, httpserver.Pattern(r), r.URL.Path)); err != nil {
			a.options.Pages.Failed(w, r, err)
			return
		}
		handle(w, r, s)
	})
}

// admit finds the session of a request and checks its role. It answers those whom it does not let in.
func (a *Accounts) admit(w http.ResponseWriter, r *http.Request, role exchange.Role, next string) (Session, bool) {
	noStore(w)
	s, found, err := a.Session(r)
	switch {
	case err != nil:
		a.options.Pages.Failed(w, r, err)
		return s, false
	case !found && r.Header.Get("Accept") == "text/event-stream":
		httpserver.WriteFault(w, fault.New(fault.Unauthenticated, "sign in at "+LoginPath))
		return s, false
	case !found:
		send(w, r, LoginPath+"?next="+url.QueryEscape(LocalPath(next, Home)))
		return s, false
	case s.Role < role:
		a.options.Pages.Forbidden(w, r, http.StatusForbidden, ForbiddenView{Session: s, Why: RefusedRole, Needed: role, Back: backFromReferer(r)})
		return s, false
	}
	return s, true
}

// noStore keeps pages of one operator out of caches, of the browser too: signing out must end what it shows.
func noStore(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
}

// send sends the browser to another page of ours, a script that asked for a piece of a page as well.
func send(w http.ResponseWriter, r *http.Request, to string) {
	if r.Header.Get("HX-Request") == "true" {
		w.Header().Set("HX-Redirect", to)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// formClaim is that of the forms which one session posts: the key is the secret of its cookie.
func formClaim(session string) capability.Claim {
	return capability.Claim{Purpose: "forms of the console", Who: session}
}

func sameText(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
