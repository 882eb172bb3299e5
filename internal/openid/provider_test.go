package openid_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"inbox/internal/fault"
	"inbox/internal/openid"
	"inbox/internal/openid/openidtest"
)

const (
	callback = "http://127.0.0.1/policy/callback"
	verifier = "verifier-verifier-verifier-verifier-verifier"
)

// client counts what is sent and can be cut off.
type client struct {
	sent int
	down bool
}

func (c *client) Do(request *http.Request) (*http.Response, error) {
	c.sent++
	if c.down {
		return nil, errors.New("cut off")
	}
	return http.DefaultTransport.RoundTrip(request)
}

func provider(t *testing.T, issuer *openidtest.Issuer, change func(*openid.Options)) *openid.Provider {
	t.Helper()
	options := openid.Options{
		Name: "staff", Issuer: issuer.URL, ClientID: openidtest.ClientID, ClientSecret: openidtest.ClientSecret,
		RedirectURL: callback, Scopes: []string{"openid", "email", "profile"}, HTTP: &client{},
	}
	if change != nil {
		change(&options)
	}
	p, err := openid.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// visit logs in and returns what the browser brings back.
func visit(t *testing.T, p *openid.Provider, issuer *openidtest.Issuer, nonce string) openid.Return {
	t.Helper()
	address, err := p.AuthorizationURL(t.Context(), "st", nonce, verifier)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(address, verifier) {
		t.Fatal("the verifier is in the address")
	}
	back, err := openid.ReadReturn(issuer.Visit(t, address))
	if err != nil || back.State != "st" {
		t.Fatalf("%+v %v", back, err)
	}
	return back
}

func TestLoginGivesTheVerifiedIdentity(t *testing.T) {
	issuer := openidtest.New(t, "u-1")
	issuer.User("email", "a@example.org")
	issuer.User("email_verified", true)
	issuer.User("name", "Ada")
	p := provider(t, issuer, nil)
	got, err := p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier)
	if err != nil {
		t.Fatal(err)
	}
	if got.Issuer != issuer.URL || got.Subject != "u-1" || got.Email != "a@example.org" || got.Name != "Ada" || len(got.TokenHash) != 64 || p.Name() != "staff" {
		t.Errorf("%+v", got)
	}
	issuer.User("email_verified", "true") // as Amazon Cognito writes it
	if got, err = p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier); err != nil || got.Email == "" {
		t.Errorf("%+v %v", got, err)
	}
	issuer.User("email_verified", false)
	if got, err = p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier); err != nil || got.Email != "" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestBadTokensAreRejected(t *testing.T) {
	issuer := openidtest.New(t, "u-1")
	p := provider(t, issuer, nil)
	for name, change := range map[string]func(map[string]any){
		"nonce":       func(c map[string]any) { c["nonce"] = "other" },
		"no nonce":    func(c map[string]any) { delete(c, "nonce") },
		"audience":    func(c map[string]any) { c["aud"] = "somebody" },
		"issuer":      func(c map[string]any) { c["iss"] = "https://evil.test" },
		"expired":     func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() },
		"no expiry":   func(c map[string]any) { delete(c, "exp") },
		"party":       func(c map[string]any) { c["azp"] = "somebody" },
		"no time":     func(c map[string]any) { delete(c, "iat") },
		"slash":       func(c map[string]any) { c["aud"] = openidtest.ClientID + "/" },
		"case":        func(c map[string]any) { c["aud"] = strings.ToUpper(openidtest.ClientID) },
		"two":         func(c map[string]any) { c["aud"] = []string{openidtest.ClientID, "somebody"} },
		"twice":       func(c map[string]any) { c["aud"] = []string{openidtest.ClientID, openidtest.ClientID} },
		"two, azp":    func(c map[string]any) { c["aud"], c["azp"] = []string{openidtest.ClientID, "somebody"}, "somebody" },
		"azp, slash":  func(c map[string]any) { c["azp"] = openidtest.ClientID + "/" },
		"azp list":    func(c map[string]any) { c["azp"] = []string{openidtest.ClientID} },
		"no client":   func(c map[string]any) { c["aud"] = []string{} },
		"nested":      func(c map[string]any) { c["aud"] = []any{[]string{openidtest.ClientID}} },
		"other case":  func(c map[string]any) { c["Sub"] = "root" },
		"iss, slash":  func(c map[string]any) { c["iss"] = issuer.URL + "/" },
		"no subject":  func(c map[string]any) { delete(c, "sub") },
		"long":        func(c map[string]any) { c["sub"] = strings.Repeat("x", 256) },
		"over 32 KiB": func(c map[string]any) { c["x"] = strings.Repeat("x", 40<<10) },
	} {
		issuer.Tamper(change)
		if got, err := p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	issuer.Tamper(func(c map[string]any) {
		c["aud"], c["azp"] = []string{"somebody", openidtest.ClientID}, openidtest.ClientID
	})
	if _, err := p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier); err != nil {
		t.Errorf("several audiences and our azp: %v", err)
	}
	issuer.Tamper(nil)
	issuer.Forge()
	if _, err := p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("forged: %v", err)
	}
	// The key is fetched once more, and the login that fetched it holds. The one who asks while the fetch before is being put away
	// gets its keys without one (go-oidc 3.21, RemoteKeySet): only a login of that instant may be repeated.
	issuer.Rotate()
	asked := issuer.KeysAsked()
	_, err := p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier)
	for repeats := 0; err != nil && issuer.KeysAsked() == asked && repeats < 1000; repeats++ {
		_, err = p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier)
	}
	if err != nil || issuer.KeysAsked() != asked+1 {
		t.Errorf("rotated: %v, with %d fetches of keys", err, issuer.KeysAsked()-asked)
	}
}

// TestReturnsNameTheirIssuer: a return that another provider sent, or that says so little of it, redeems no code (RFC 9207).
func TestReturnsNameTheirIssuer(t *testing.T) {
	issuer := openidtest.New(t, "u-1")
	for _, always := range []bool{false, true} {
		issuer.Publish("authorization_response_iss_parameter_supported", always)
		p := provider(t, issuer, nil)
		for name, c := range map[string]struct {
			iss  []string
			good bool
		}{
			"its own": {[]string{issuer.URL}, true}, "none": {nil, !always}, "another": {[]string{"https://evil.test"}, false},
			"a slash": {[]string{issuer.URL + "/"}, false}, "empty": {[]string{""}, false}, "two": {[]string{issuer.URL, issuer.URL}, false},
		} {
			query := url.Values{"state": {"st"}, "code": {visit(t, p, issuer, "n").Code}, "iss": c.iss}
			back, err := openid.ReadReturn(query)
			if err == nil {
				_, err = p.Redeem(t.Context(), back, "n", verifier)
			}
			if (err == nil) != c.good {
				t.Errorf("%s, published: %v: %v", name, always, err)
			}
		}
	}
}

func TestReturnsWithoutALogin(t *testing.T) {
	issuer := openidtest.New(t, "u-1")
	p := provider(t, issuer, nil)
	for code, kind := range map[string]fault.Kind{
		"access_denied": fault.Unauthenticated, "login_required": fault.Unauthenticated, "server_error": fault.Unavailable, "temporarily_unavailable": fault.Unavailable,
	} {
		issuer.Refuse(code)
		_, err := p.Redeem(t.Context(), visit(t, p, issuer, "n"), "n", verifier)
		if !fault.Is(err, kind) || errors.Is(err, openid.ErrTurnedBack) != (kind == fault.Unauthenticated) {
			t.Errorf("%s: %v", code, err)
		}
	}
	for _, query := range []string{"", "state=s", "code=c", "error=x", "state=s&code=c&code=d", "state=s&state=t&code=c", "state=s&error=a&error=b"} {
		values, _ := url.ParseQuery(query)
		if back, err := openid.ReadReturn(values); !fault.Is(err, fault.Malformed) {
			t.Errorf("%q: %+v %v", query, back, err)
		}
	}
	if back, err := openid.ReadReturn(url.Values{"state": {"s"}, "code": {"c"}, "error": {"access_denied"}}); err != nil || back.Code != "" {
		t.Errorf("%+v %v", back, err)
	}
}

func TestLogoutURL(t *testing.T) {
	issuer := openidtest.New(t, "u-1")
	for published, want := range map[any]string{
		nil: "", "": "", "/logout": "", "javascript:alert(1)": "", "ftp://x.test/": "", "https://u@x.test/": "", 7: "",
		"https://x.test/out?a=b": "https://x.test/out?a=b&client_id=" + openidtest.ClientID,
		issuer.URL + "/logout":   issuer.URL + "/logout?client_id=" + openidtest.ClientID,
	} {
		issuer.Publish("end_session_endpoint", published)
		if got := provider(t, issuer, nil).LogoutURL(t.Context()); got != want {
			t.Errorf("%v: %q", published, got)
		}
	}
	down := provider(t, issuer, func(o *openid.Options) { o.HTTP = &client{down: true} })
	if got := down.LogoutURL(t.Context()); got != "" {
		t.Errorf("a provider that is down: %q", got)
	}
}

func TestCodesAreGoodOnceAndForTheirVerifier(t *testing.T) {
	issuer := openidtest.New(t, "u-1")
	p := provider(t, issuer, nil)
	code := visit(t, p, issuer, "n")
	if _, err := p.Redeem(t.Context(), code, "n", verifier+"x"); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("verifier: %v", err)
	}
	code = visit(t, p, issuer, "n")
	if _, err := p.Redeem(t.Context(), code, "n", verifier); err != nil {
		t.Error(err)
	}
	for _, code := range []string{code.Code, "", strings.Repeat("x", 5000)} {
		if _, err := p.Redeem(t.Context(), openid.Return{State: "st", Code: code}, "n", verifier); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%.9q: %v", code, err)
		}
	}
	wrong := provider(t, issuer, func(o *openid.Options) { o.ClientSecret = "wrong" })
	if _, err := wrong.Redeem(t.Context(), visit(t, wrong, issuer, "n"), "n", verifier); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("secret: %v", err)
	}
}

func TestDiscoveryIsKeptAndAFailureForAMoment(t *testing.T) {
	issuer := openidtest.New(t, "u-1")
	now := time.Now()
	http := &client{down: true}
	p := provider(t, issuer, func(o *openid.Options) { o.HTTP, o.Now = http, func() time.Time { return now } })
	ask := func() error {
		_, err := p.AuthorizationURL(t.Context(), "s", "n", verifier)
		return err
	}
	for range 3 {
		if err := ask(); !fault.Is(err, fault.Unavailable) {
			t.Fatal(err)
		}
	}
	if http.sent != 1 {
		t.Errorf("a provider that is down was asked %d times", http.sent)
	}
	http.down = false
	now = now.Add(11 * time.Second)
	for range 3 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	if http.sent != 2 {
		t.Errorf("asked %d times", http.sent)
	}
	now = now.Add(2 * time.Hour)
	http.down = true
	if err := ask(); err != nil || http.sent != 3 {
		t.Errorf("the old document did not outlive a failure: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := openid.Options{Name: "n", Issuer: "https://accounts.test", ClientID: "c", RedirectURL: callback, HTTP: &client{}}
	if _, err := openid.New(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*openid.Options){
		"issuer": func(o *openid.Options) { o.Issuer = "accounts.test" }, "scheme": func(o *openid.Options) { o.Issuer = "ftp://x" },
		"client": func(o *openid.Options) { o.ClientID = "" }, "redirect": func(o *openid.Options) { o.RedirectURL = "" },
		"name": func(o *openid.Options) { o.Name = "" }, "http": func(o *openid.Options) { o.HTTP = nil },
	} {
		options := good
		change(&options)
		if _, err := openid.New(options); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
