package account_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/openid"
	"inbox/internal/openid/openidtest"
)

// desk is a console with two pages, and what it keeps: tokens, sessions, the audit trail.
type desk struct {
	*account.Accounts

	t        *testing.T
	handler  http.Handler
	tokens   map[string]exchange.Token           // by hash
	sessions map[string]*exchange.ConsoleSession // by hash
	acts     []string                            // on the audit trail
	done     []string                            // what handlers of acts did
	rules    exchange.ConsoleRules
	wait     time.Duration
	down     error
}

func (d *desk) TokenByHash(_ context.Context, hash string) (exchange.Token, bool, error) {
	token, found := d.tokens[hash]
	return token, found, d.down
}

func (d *desk) Audit(_ context.Context, record exchange.AuditRecord) error {
	d.acts = append(d.acts, record.Code+" by "+record.Principal)
	return d.down
}

func (d *desk) CreateConsoleSession(_ context.Context, s exchange.ConsoleSession, _ int) error {
	d.sessions[s.Hash] = &s
	return d.down
}

func (d *desk) ConsoleSession(_ context.Context, hash string) (exchange.ConsoleSession, bool, error) {
	found, is := d.sessions[hash]
	if !is || d.down != nil {
		return exchange.ConsoleSession{}, false, d.down
	}
	shown := *found
	if shown.Token != nil { // as it is now
		for _, token := range d.tokens {
			if token.ID == shown.Token.ID {
				shown.Token = &token
			}
		}
	}
	return shown, true, nil
}

func (d *desk) byID(id string) *exchange.ConsoleSession {
	for _, s := range d.sessions {
		if s.ID == id {
			return s
		}
	}
	return &exchange.ConsoleSession{}
}

func (d *desk) SeeConsoleSession(_ context.Context, id string, at time.Time) error {
	d.byID(id).SeenAt = at
	return nil
}

func (d *desk) ProveConsoleSession(_ context.Context, id string, at time.Time, members []string) error {
	d.byID(id).ProvenAt, d.byID(id).Members = at, members
	return nil
}

func (d *desk) EndConsoleSession(_ context.Context, id string, _ exchange.SessionOwner) error {
	delete(d.sessions, d.byID(id).Hash)
	return nil
}

// The pages are one line each.
func (d *desk) Login(w http.ResponseWriter, _ *http.Request, status int, v account.LoginView) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "login next=%s failed=%s service=%s leave=%s", v.Next, v.Failed, v.ServiceURL, v.LogoutURL)
}

func (d *desk) Confirm(w http.ResponseWriter, _ *http.Request, status int, v account.ConfirmView) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "confirm next=%s failed=%s service=%s", v.Next, v.Failed, v.ServiceURL)
}

func (d *desk) Forbidden(w http.ResponseWriter, _ *http.Request, status int, v account.ForbiddenView) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "forbidden why=%s needed=%s back=%s", v.Why, v.Needed, v.Back)
}

func (d *desk) Failed(w http.ResponseWriter, _ *http.Request, err error) {
	httpserver.WriteFault(w, err)
}

func newDesk(t *testing.T, base string, service account.Service) *desk {
	t.Helper()
	d := &desk{
		t: t, tokens: map[string]exchange.Token{}, sessions: map[string]*exchange.ConsoleSession{},
		rules: exchange.ConsoleRules{Idle: time.Hour, Admins: []string{"Boss@example.org"}, Workers: []string{"group:ops"}, Readers: []string{"wall@example.org"}},
	}
	for _, scope := range []string{exchange.TokenRead, exchange.TokenWork, exchange.TokenAdmin, exchange.TokenPeer, exchange.TokenPull} {
		d.tokens[bearer.Hash("token "+scope)] = exchange.Token{ID: "id-" + scope, Name: "name-" + scope, Scope: scope}
	}
	d.tokens[bearer.Hash("token revoked")] = exchange.Token{ID: "r", Scope: exchange.TokenAdmin, RevokedAt: time.Unix(1, 0)}
	d.tokens[bearer.Hash("token expired")] = exchange.Token{ID: "e", Scope: exchange.TokenAdmin, ExpiresAt: time.Unix(1, 0)}

	address, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	options := account.Options{
		Sessions: d, Tokens: d, Audit: d, Pages: d, Rules: func() exchange.ConsoleRules { return d.rules }, Lifetime: 24 * time.Hour, URL: address,
		Pace: func(netip.Addr) time.Duration { return d.wait },
	}
	if service != nil {
		options.Service = service
	}
	if d.Accounts, err = account.New(options); err != nil {
		t.Fatal(err)
	}

	act := func(w http.ResponseWriter, r *http.Request, s account.Session) {
		d.done = append(d.done, r.URL.Path+" by "+s.By()+" with "+r.PostFormValue("note"))
		http.Redirect(w, r, "/console", http.StatusSeeOther)
	}
	look := func(w http.ResponseWriter, _ *http.Request, s account.Session) {
		fmt.Fprintf(w, "%s %s %s", s.By(), s.Role, s.CSRF)
	}
	server, err := httpserver.New(httpserver.Options{Routes: append(d.Routes(),
		httpserver.Route{Method: http.MethodGet, Pattern: "/console", Handler: d.Page(exchange.RoleRead, look)},
		httpserver.Route{Method: http.MethodGet, Pattern: "/console/settings", Handler: d.Page(exchange.RoleAdmin, look)},
		httpserver.Route{Method: http.MethodPost, Pattern: "/console/held/{turn}/release", Handler: d.Act(exchange.RoleWork, false, act)},
		httpserver.Route{Method: http.MethodPost, Pattern: "/console/erase", Handler: d.Act(exchange.RoleAdmin, true, act)},
	)})
	if err != nil {
		t.Fatal(err)
	}
	d.handler = server.Handler()
	return d
}

// browser keeps cookies as browsers do, by their names alone.
type browser struct {
	*desk

	host    string
	cookies map[string]string
}

func (d *desk) browser() *browser {
	return &browser{desk: d, host: "console.test", cookies: map[string]string{}}
}

// send sends a request with headers "Name: value"; a form makes it a POST.
func (b *browser) send(path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	r := httptest.NewRequest(method, "http://"+b.host+path, strings.NewReader(body))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}

	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		if b.cookies[cookie.Name] = cookie.Value; cookie.MaxAge < 0 {
			delete(b.cookies, cookie.Name)
		}
	}
	return w
}

func (b *browser) signIn(scope string) *httptest.ResponseRecorder {
	return b.send(account.LoginPath, url.Values{"token": {"token " + scope}})
}

// csrf is the token that forms of the page have.
func (b *browser) csrf() string {
	words := strings.Fields(b.send("/console", nil).Body.String())
	if len(words) != 3 {
		b.t.Fatalf("the console showed %q", words)
	}
	return words[2]
}

// expect checks status and where the browser is sent, or what the page says.
func expect(t *testing.T, what string, w *httptest.ResponseRecorder, status int, said string) {
	t.Helper()
	got := w.Header().Get("Location")
	if got == "" {
		got = w.Body.String()
	}
	if w.Code != status || !strings.HasPrefix(got, said) {
		t.Errorf("%s: %d %q, want %d %q", what, w.Code, got, status, said)
	}
	if w.Header().Get("Cache-Control") != "no-store" && w.Code != http.StatusNotFound {
		t.Errorf("%s: caches may keep it", what)
	}
}

func TestSignInByToken(t *testing.T) {
	for scope, role := range map[string]string{"read": "read", "work": "work", "admin": "admin"} {
		b := newDesk(t, "http://console.test", nil).browser()
		expect(t, "no session", b.send("/console", nil), http.StatusSeeOther, "/console/login?next=%2Fconsole")
		expect(t, scope, b.signIn(scope), http.StatusSeeOther, "/console")
		expect(t, scope, b.send("/console", nil), http.StatusOK, "operator:name-"+scope+" "+role+" ")
		if b.acts[0] != "operator:signed_in by operator:name-"+scope {
			t.Errorf("the trail has %q", b.acts)
		}
		expect(t, "signed in already", b.send(account.LoginPath+"?next=/console/settings", nil), http.StatusSeeOther, "/console/settings")
		expect(t, "sign out", b.send(account.LogoutPath, url.Values{"csrf": {b.csrf()}}), http.StatusSeeOther, "/console/login")
		if len(b.sessions) != 0 || len(b.cookies) != 0 {
			t.Errorf("after signing out there are %d sessions and the cookies %v", len(b.sessions), b.cookies)
		}
	}
}

func TestRefusedProofsAreAllAlike(t *testing.T) {
	d := newDesk(t, "http://console.test", nil)
	for _, token := range []string{"", "unknown", "token ", "token pull", "token revoked", "token expired", strings.Repeat("x", 600), "\x00\xff"} {
		b := d.browser()
		w := b.send(account.LoginPath, url.Values{"token": {token}, "next": {"/console/settings"}})
		expect(t, token, w, http.StatusUnauthorized, "login next=/console/settings failed=proof service=")
		if len(b.cookies) != 0 || len(d.sessions) != 0 {
			t.Errorf("%q began a session", token)
		}
	}
	d.wait = 30 * time.Second
	w := d.browser().signIn("admin")
	expect(t, "too many", w, http.StatusTooManyRequests, "login next=/console failed=limit")
	if w.Header().Get("Retry-After") != "30" {
		t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
	}
	d.wait = 0
	huge := d.browser().send(account.LoginPath, url.Values{"token": {strings.Repeat("x", 1<<20)}})
	if huge.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a form of 1 MiB: %d %s", huge.Code, huge.Body)
	}
}

func TestCookies(t *testing.T) {
	for name, one := range map[string]struct {
		base, host, cookie string
		secure             bool
	}{
		"plain":           {"http://console.test", "console.test", "inbox-console", false},
		"https":           {"https://console.test", "console.test", "__Host-inbox-console", true},
		"tunnel to https": {"https://console.test", "localhost:8080", "inbox-console", false},
	} {
		b := newDesk(t, one.base, nil).browser()
		b.host = one.host
		made := b.signIn("read").Result().Cookies()
		if len(made) != 1 {
			t.Fatalf("%s: %v", name, made)
		}
		got := made[0]
		if got.Name != one.cookie || got.Secure != one.secure || !got.HttpOnly || got.SameSite != http.SameSiteLaxMode || got.Path != "/" || got.Domain != "" || got.MaxAge != 86400 {
			t.Errorf("%s: %s", name, got)
		}
		for _, session := range b.sessions {
			if session.Hash == got.Value || session.Hash != bearer.Hash(got.Value) {
				t.Errorf("%s: the store has the secret", name)
			}
		}
		expect(t, name, b.send("/console", nil), http.StatusOK, "operator:")

		for what, value := range map[string]string{"empty": "", "short": "x", "huge": strings.Repeat("x", 8000), "other": strings.Repeat("A", 52), "quoted": `"` + got.Value + `"x`} {
			other := b.browser()
			other.host = one.host
			other.cookies[one.cookie] = value
			expect(t, name+" "+what, other.send("/console", nil), http.StatusSeeOther, "/console/login")
		}
		if one.secure { // a cookie that another host of the domain may have set
			other := b.browser()
			other.cookies["inbox-console"] = got.Value
			expect(t, "without prefix", other.send("/console", nil), http.StatusSeeOther, "/console/login")
		}
	}
}

func TestSigningInEndsTheSessionBefore(t *testing.T) {
	b := newDesk(t, "http://console.test", nil).browser()
	b.signIn("read")
	before := b.cookies["inbox-console"]
	b.signIn("work")
	if b.cookies["inbox-console"] == before || len(b.sessions) != 1 {
		t.Errorf("%d sessions", len(b.sessions))
	}
}

func TestRolesAndForms(t *testing.T) {
	for name, one := range map[string]struct {
		scope, path string
		headers     []string
		csrf        string // "own" = that of the session
		status      int
		said        string
	}{
		"work":             {"work", "/console/held/t1/release", nil, "own", 303, "/console"},
		"header":           {"work", "/console/held/t1/release", []string{"X-CSRF-Token: own"}, "", 303, "/console"},
		"role":             {"read", "/console/held/t1/release", nil, "own", 403, "forbidden why=role needed=work"},
		"role of a danger": {"work", "/console/erase", nil, "own", 403, "forbidden why=role needed=admin"},
		"no csrf":          {"admin", "/console/held/t1/release", nil, "", 403, "forbidden why=form"},
		"other csrf":       {"admin", "/console/held/t1/release", nil, strings.Repeat("A", 43), 403, "forbidden why=form"},
		"other site":       {"admin", "/console/held/t1/release", []string{"Sec-Fetch-Site: cross-site"}, "own", 403, "forbidden why=origin"},
		"same site":        {"admin", "/console/held/t1/release", []string{"Sec-Fetch-Site: same-site"}, "own", 403, "forbidden why=origin"},
		"same origin":      {"admin", "/console/held/t1/release", []string{"Sec-Fetch-Site: same-origin"}, "own", 303, "/console"},
		"foreign origin":   {"admin", "/console/held/t1/release", []string{"Origin: http://evil.test"}, "own", 403, "forbidden why=origin"},
		"back":             {"admin", "/console/held/t1/release", []string{"Referer: http://console.test/console/held?x=1"}, "", 403, "forbidden why=form needed=none back=/console/held?x=1"},
		"foreign back":     {"admin", "/console/held/t1/release", []string{"Referer: http://evil.test/console/held"}, "", 403, "forbidden why=form needed=none back=/console"},
	} {
		b := newDesk(t, "http://console.test", nil).browser()
		b.signIn(one.scope)
		own := b.csrf()
		form := url.Values{"note": {"n"}, "csrf": {strings.Replace(one.csrf, "own", own, 1)}}
		for i := range one.headers {
			one.headers[i] = strings.Replace(one.headers[i], ": own", ": "+own, 1)
		}
		expect(t, name, b.send(one.path, form, one.headers...), one.status, one.said)
		if did := len(b.done) == 1 && len(b.acts) == 2; did != (one.status == 303) || !did && len(b.done)+len(b.acts) != 1 {
			t.Errorf("%s: done %q, on the trail %q", name, b.done, b.acts)
		}
		if one.status == 303 && b.acts[1] != "operator:held.release by operator:name-"+one.scope {
			t.Errorf("%s: the trail has %q", name, b.acts)
		}
	}

	b := newDesk(t, "http://console.test", nil).browser()
	expect(t, "no session", b.send("/console/held/t1/release", url.Values{}, "Referer: http://console.test/console/held"), 303, "/console/login?next=%2Fconsole%2Fheld")
	b.signIn("read")
	expect(t, "page", b.send("/console/settings", nil), 403, "forbidden why=role needed=admin")
}

func TestScriptsAreSentToSignIn(t *testing.T) {
	b := newDesk(t, "http://console.test", nil).browser()
	if w := b.send("/console", nil, "HX-Request: true"); w.Code != http.StatusUnauthorized || w.Header().Get("HX-Redirect") != "/console/login?next=%2Fconsole" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if w := b.send("/console", nil, "Accept: text/event-stream"); w.Code != http.StatusUnauthorized {
		t.Errorf("%d", w.Code)
	}
}

func TestLocalPaths(t *testing.T) {
	for _, good := range []string{"/console", "/console?x=1", "/console/held", "/console/held?turn=a%2Fb#x"} {
		if account.LocalPath(good, "no") != good {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{
		"", "//evil.test", "/\\evil.test", "https://evil.test/console", "javascript:alert(1)", "/console/../admin", "/consoles", "/", "/api/v1/held", "console",
		"/console//evil", "/console\n", "/console/login", "/console/login/return", "/console/logout", "/console/confirm?next=/console", "http:/console", "/console\x00", "/console/" + strings.Repeat("x", 3000),
		"%zz", "/console/./x",
	} {
		if account.LocalPath(bad, "no") != "no" {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzLocalPath(f *testing.F) {
	f.Add("/console/held?x=1")
	f.Add("/console/../x")
	f.Add("//console")
	base, _ := url.Parse("https://console.test/console/held")
	f.Fuzz(func(t *testing.T, text string) {
		if account.LocalPath(text, "no") == "no" {
			return
		}
		reference, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if to := base.ResolveReference(reference); to.Host != "console.test" || to.Path != "/console" && !strings.HasPrefix(to.Path, "/console/") {
			t.Errorf("%q leads to %s", text, to)
		}
	})
}

func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDesk(t, "http://console.test", nil).browser()
		b.signIn("admin")
		for range 47 { // it is seen twice an hour, so it goes on until its end
			time.Sleep(30 * time.Minute) //nolint:forbidigo // the clock of the bubble
			expect(t, "seen", b.send("/console", nil), http.StatusOK, "operator:")
		}
		time.Sleep(30*time.Minute - time.Millisecond) //nolint:forbidigo // the clock of the bubble
		expect(t, "just before the end", b.send("/console", nil), http.StatusOK, "operator:")
		time.Sleep(time.Millisecond) //nolint:forbidigo // the clock of the bubble
		expect(t, "lifetime", b.send("/console", nil), http.StatusSeeOther, "/console/login")

		b.signIn("admin")
		time.Sleep(time.Hour) //nolint:forbidigo // the clock of the bubble
		expect(t, "idle", b.send("/console", nil), http.StatusSeeOther, "/console/login")

		b.signIn("admin")
		token := b.tokens[bearer.Hash("token admin")]
		token.Scope = exchange.TokenRead
		b.tokens[bearer.Hash("token admin")] = token
		expect(t, "the role is that of the token now", b.send("/console/settings", nil), http.StatusForbidden, "forbidden why=role")
		token.ExpiresAt = time.Now().Add(time.Minute)
		b.tokens[bearer.Hash("token admin")] = token
		time.Sleep(time.Minute) //nolint:forbidigo // the clock of the bubble
		expect(t, "ends with its token", b.send("/console", nil), http.StatusSeeOther, "/console/login")
	})
}

func TestDangerousActsNeedAFreshProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDesk(t, "http://console.test", nil).browser()
		b.signIn("admin")
		form := url.Values{"csrf": {b.csrf()}, "note": {"n"}, "back": {"/console/people?who=x"}}
		expect(t, "fresh", b.send("/console/erase", form), 303, "/console")
		time.Sleep(account.Fresh + time.Second) //nolint:forbidigo // the clock of the bubble
		expect(t, "stale", b.send("/console/erase", form), 303, "/console/confirm?next=%2Fconsole%2Fpeople%3Fwho%3Dx")
		if len(b.done) != 1 {
			t.Errorf("done: %q", b.done)
		}
		expect(t, "the page", b.send("/console/confirm?next=%2Fconsole%2Fpeople%3Fwho%3Dx", nil), 200, "confirm next=/console/people?who=x failed= service=")
		confirm := func(token, csrf string) *httptest.ResponseRecorder {
			return b.send(account.ConfirmPath, url.Values{"token": {token}, "csrf": {csrf}, "next": {"/console/people?who=x"}})
		}
		expect(t, "another operator's token", confirm("token work", b.csrf()), 401, "confirm next=/console/people?who=x failed=proof")
		expect(t, "nonsense", confirm("x", b.csrf()), 401, "confirm next=/console/people?who=x failed=proof")
		expect(t, "no csrf", confirm("token admin", ""), 403, "forbidden why=form")
		expect(t, "still stale", b.send("/console/erase", form), 303, "/console/confirm")
		expect(t, "proven", confirm("token admin", b.csrf()), 303, "/console/people?who=x")
		expect(t, "fresh again", b.send("/console/erase", form), 303, "/console")
		if len(b.done) != 2 {
			t.Errorf("done: %q", b.done)
		}
	})
}

func TestADatabaseThatIsDownLetsNobodyIn(t *testing.T) {
	b := newDesk(t, "http://console.test", nil).browser()
	b.signIn("admin")
	form := url.Values{"csrf": {b.csrf()}}
	b.down = fault.Wrap(fault.Unavailable, "the database is down", errors.New("cut off"))
	for name, w := range map[string]*httptest.ResponseRecorder{
		"page": b.send("/console", nil), "login": b.send(account.LoginPath, nil), "sign in": b.browser().signIn("admin"), "act": b.send("/console/held/t/release", form),
	} {
		expect(t, name, w, http.StatusServiceUnavailable, "{")
	}
	if len(b.done) != 0 {
		t.Errorf("done: %q", b.done)
	}
}

// loopback reaches the issuer of a test.
type loopback struct{ down bool }

func (l *loopback) Do(request *http.Request) (*http.Response, error) {
	if l.down {
		return nil, errors.New("cut off")
	}
	return http.DefaultTransport.RoundTrip(request)
}

func TestLoginService(t *testing.T) {
	issuer := openidtest.New(t, "u-1")
	web := &loopback{}
	provider, err := openid.New(openid.Options{
		Name: "company", Issuer: issuer.URL, ClientID: openidtest.ClientID, ClientSecret: openidtest.ClientSecret,
		RedirectURL: "http://console.test" + account.ReturnPath, HTTP: web,
	})
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, "http://console.test", provider)
	b := d.browser()
	// visit goes to the service and back.
	visit := func(b *browser, path string) *httptest.ResponseRecorder {
		t.Helper()
		w := b.send(path, nil)
		if w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), issuer.URL) {
			t.Fatalf("%s: %d %s", path, w.Code, w.Header().Get("Location"))
		}
		return b.send(account.ReturnPath+"?"+issuer.Visit(t, w.Header().Get("Location")).Encode(), nil)
	}
	start := account.ServicePath + "?next=%2Fconsole%2Fsettings"

	expect(t, "the link", b.send(account.LoginPath+"?next=/console/settings", nil), 200, "login next=/console/settings failed= service="+start)
	expect(t, "nobody that the settings know", visit(b, start), 403, "login next=/console/settings failed=role")
	issuer.User("email", "boss@example.org")
	expect(t, "an address that is not verified", visit(b, start), 403, "login next=/console/settings failed=role")
	issuer.User("email_verified", true)
	expect(t, "admin", visit(b, start), 303, "/console/settings")
	expect(t, "admin", b.send("/console", nil), 200, "operator:boss@example.org admin ")

	form := url.Values{"csrf": {b.csrf()}, "note": {"n"}, "back": {"/console/settings"}}
	again := account.ServicePath + "?again=1&next=%2Fconsole%2Fsettings"
	expect(t, "the service did not say when", b.send("/console/erase", form), 303, "/console/confirm?next=%2Fconsole%2Fsettings")
	expect(t, "confirm page", b.send("/console/confirm?next=/console/settings", nil), 200, "confirm next=/console/settings failed= service="+again)
	expect(t, "no fresh proof", visit(b, again), 403, "confirm next=/console/settings failed=other")
	issuer.User("auth_time", time.Now().Add(-time.Hour).Unix())
	expect(t, "an old proof", visit(b, again), 403, "confirm next=/console/settings failed=other")
	issuer.User("auth_time", time.Now().Unix())
	issuer.User("sub", "u-2")
	expect(t, "another person", visit(b, again), 403, "confirm next=/console/settings failed=other")
	issuer.User("sub", "u-1")
	to := b.send(again, nil).Header().Get("Location")
	if !strings.Contains(to, "prompt=login") || !strings.Contains(to, "max_age=0") || !strings.Contains(to, "code_challenge_method=S256") {
		t.Errorf("the service is asked by %s", to)
	}
	expect(t, "proven", visit(b, again), 303, "/console/settings")
	expect(t, "fresh", b.send("/console/erase", form), 303, "/console")

	d.rules.Admins = nil
	expect(t, "the settings know the person no more", b.send("/console", nil), 303, "/console/login")
	issuer.User("groups", []string{"staff", "ops"})
	expect(t, "a group", visit(b, account.ServicePath+"?next=//evil.test"), 303, "/console")
	expect(t, "a group", b.send("/console", nil), 200, "operator:boss@example.org work ")

	// What comes back counts in the browser that began, once and not for ever.
	other := d.browser()
	away := other.send(start, nil).Header().Get("Location")
	back := account.ReturnPath + "?" + issuer.Visit(t, away).Encode()
	expect(t, "another browser", d.browser().send(back, nil), 401, "login next=/console failed=attempt")
	expect(t, "forged state", other.send(account.ReturnPath+"?state=e30.AAAA&code=x", nil), 401, "login next=/console failed=attempt")
	expect(t, "no state", other.send(account.ReturnPath+"?code=x", nil), 401, "login next=/console failed=attempt")
	expect(t, "an old tab of a browser that is signed in", b.send(back, nil), 303, "/console")
	expect(t, "none of that ended the attempt", other.send(back, nil), 303, "/console/settings")
	other = d.browser()
	expect(t, "the attempt has ended", other.send(back, nil), 401, "login next=/console failed=attempt")
	issuer.Refuse("access_denied")
	expect(t, "turned back", visit(other, start), 401, "login next=/console/settings failed=declined")
	issuer.Refuse("server_error")
	expect(t, "the service is in trouble", visit(other, start), 503, "login next=/console/settings failed=service")
	issuer.Refuse("")
	issuer.Forge()
	expect(t, "forged token", visit(other, start), 401, "login next=/console/settings failed=rejected")
	issuer.Rotate()
	if len(d.sessions) != 2 {
		t.Errorf("%d sessions", len(d.sessions))
	}
	d.wait = time.Minute
	expect(t, "too many", other.send(start, nil), 429, "login next=/console/settings failed=limit")
}

// TestTwoTabs: the second tab took the cookie of the first, which then said that its token was no operator's.
func TestTwoTabs(t *testing.T) {
	d, issuer := withService(t)
	b := d.browser()
	begin := func(next string) string {
		return b.send(account.ServicePath+"?next="+url.QueryEscape(next), nil).Header().Get("Location")
	}
	first, second := begin("/console/settings"), begin("/console")
	finish := func(address string) *httptest.ResponseRecorder {
		return b.send(account.ReturnPath+"?"+issuer.Visit(t, address).Encode(), nil)
	}
	expect(t, "first tab", finish(first), 303, "/console/settings")
	expect(t, "second tab", finish(second), 303, "/console")
	if len(b.cookies) != 1 {
		t.Errorf("attempts left cookies: %v", b.cookies)
	}
}

// TestSigningOutEndsTheSessionOfTheService (OpenID Connect RP-Initiated Logout 1.0).
func TestSigningOutEndsTheSessionOfTheService(t *testing.T) {
	out := func(endpoint string, begin func(d *desk, issuer *openidtest.Issuer, b *browser)) (*httptest.ResponseRecorder, string) {
		d, issuer := withService(t)
		if endpoint != "" {
			issuer.Publish("end_session_endpoint", strings.Replace(endpoint, "SERVICE", issuer.URL, 1))
		}
		b := d.browser()
		begin(d, issuer, b)
		w := b.send(account.LogoutPath, url.Values{"csrf": {b.csrf()}})
		expect(t, "signed out here", b.send("/console", nil), 303, account.LoginPath)
		return w, issuer.URL
	}
	byService := func(_ *desk, issuer *openidtest.Issuer, b *browser) {
		away := b.send(account.ServicePath, nil).Header().Get("Location")
		b.send(account.ReturnPath+"?"+issuer.Visit(t, away).Encode(), nil)
	}
	w, service := out("SERVICE/logout", byService)
	expect(t, "begun at the service", w, 303, service+"/logout?client_id="+openidtest.ClientID)
	w, _ = out("", byService)
	expect(t, "a service without logout", w, 303, account.LoginPath)
	w, _ = out("https://sessions.test/logout", byService)
	expect(t, "a service whose sessions are elsewhere", w, 200, "login next=/console failed= service=/console/login/service?next=%2Fconsole leave=https://sessions.test/logout?client_id="+openidtest.ClientID)
	w, _ = out("SERVICE/logout", func(_ *desk, _ *openidtest.Issuer, b *browser) { b.signIn("admin") })
	expect(t, "begun by a token", w, 303, account.LoginPath)
}

// withService is a console with a login service that knows an admin.
func withService(t *testing.T) (*desk, *openidtest.Issuer) {
	t.Helper()
	issuer := openidtest.New(t, "u-1")
	issuer.User("email", "boss@example.org")
	issuer.User("email_verified", true)
	provider, err := openid.New(openid.Options{
		Name: "company", Issuer: issuer.URL, ClientID: openidtest.ClientID, ClientSecret: openidtest.ClientSecret,
		RedirectURL: "http://console.test" + account.ReturnPath, HTTP: &loopback{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return newDesk(t, "http://console.test", provider), issuer
}
