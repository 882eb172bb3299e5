package console_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"inbox/console"
	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/golden"
	"inbox/internal/httpserver"
	"inbox/internal/openid"
	"inbox/normalized"
	"inbox/policypart"
)

const (
	state     = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	publicURL = "https://agents.example"
)

// directory has one agent.
type directory struct{}

func (directory) Agent(name string) (exchange.AgentProfile, bool) {
	return exchange.AgentProfile{Name: "echo", Address: "@echo@agents.example", DisplayName: "Echo <script>alert(1)</script>"}, strings.EqualFold(name, "echo")
}

func (d directory) Agents() []exchange.AgentProfile {
	agent, _ := d.Agent("echo")
	return []exchange.AgentProfile{agent}
}

// assetHash changes with the stylesheet, which says nothing about a page.
var assetHash = regexp.MustCompile(`/assets/[0-9a-f]{16}/`)

// desk is a recorder of what reached the demands.
type desk struct {
	demand console.Demand
	err    error
	calls  []string
}

func (d *desk) note(call string) (console.Demand, error) {
	d.calls = append(d.calls, call)
	return d.demand, d.err
}

// nobody is a desk without any demand.
type nobody struct{ *desk }

func (n nobody) Decide(context.Context, string, bool) (console.Demand, error) {
	return console.Demand{}, n.err
}

func (d *desk) Show(_ context.Context, token string) (console.Demand, error) {
	if token != state {
		return console.Demand{}, fault.New(fault.NotFound, "there is no such request")
	}
	return d.demand, nil
}

func (d *desk) Decide(_ context.Context, _ string, grant bool) (console.Demand, error) {
	d.demand.Open, d.demand.Status, d.demand.Outcome = false, policypart.StatusResolved, policypart.OutcomeGranted
	if !grant {
		d.demand.Status, d.demand.Outcome = policypart.StatusDenied, policypart.OutcomeDenied
	}
	return d.note(map[bool]string{true: "grant", false: "decline"}[grant])
}

func (d *desk) DecideApproval(ctx context.Context, token string, grant bool, code, shown string) (console.Demand, error) {
	decided, err := d.Decide(ctx, token, grant)
	d.calls[len(d.calls)-1] += " with " + code + " as " + shown
	return decided, err
}

func (d *desk) BeginLogin(_ context.Context, _, login string) (string, string, string, error) {
	_, err := d.note("login " + login)
	return "https://login.example/authorize?state=x", "abcd", "binding", err
}

func (d *desk) FinishLogin(_ context.Context, back openid.Return, binding string) (console.Demand, error) {
	return d.note("finish " + back.State + " " + back.Code + " " + binding)
}

func (d *desk) ConfirmLogin(_ context.Context, _, proof, binding string, grant bool) (console.Demand, error) {
	return d.note(fmt.Sprint("confirm ", proof, " ", binding, " ", grant))
}

func (d *desk) Pay(_ context.Context, _ string, payment json.RawMessage) (console.Demand, error) {
	return d.note("pay " + string(payment))
}

func consent() console.Demand {
	issued := time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)
	return console.Demand{
		ID: "019a0000-0000-7000-8000-000000000001", Token: state, Agent: "echo", AgentAddress: "@echo@agents.example", Kind: policypart.ConsentRequired, Status: policypart.StatusIssued, Open: true,
		Part: policypart.Part{
			Kind: policypart.ConsentRequired, Title: "Your calendar", Message: "May I read <b>your</b> calendar?", Scopes: []string{"calendar.read"},
			MessageTranslations: map[string]policypart.Translation{"de": {Title: "Dein Kalender", Message: "Darf ich deinen Kalender lesen?"}},
		},
		Asker: "acct:alice@social.example", IssuedAt: issued, ExpiresAt: issued.Add(24 * time.Hour),
	}
}

func approval() console.Demand {
	d := consent()
	d.Purpose, d.Asker = policypart.PurposeApproval, "@ann@sender.example"
	d.Part.Code, d.Part.Scopes = policypart.CodeApproval, nil
	d.Summary, d.Tool, d.Question = "Refund order <17>", "refund", "please refund order 17\n<script>"
	d.Preview = json.RawMessage(`{"order":17,"amount":"5.00"}`)
	d.Shown = "6f3c"
	return d
}

func payment() console.Demand {
	d := consent()
	d.Kind, d.Part.Kind = policypart.PaymentRequired, policypart.PaymentRequired
	d.Part.Title, d.Part.Message, d.Part.Scopes, d.Part.MessageTranslations = "A report", "The report costs two dollars.", nil, nil
	d.Part.Amount, d.Part.Currency = "2.00", "USD"
	d.Accepts = []json.RawMessage{json.RawMessage(`{"scheme":"exact","maxAmountRequired":"2000000"}`)}
	return d
}

func login() console.Demand {
	d := consent()
	d.Kind, d.Part.Kind, d.Part.Scopes = policypart.Unauthorized, policypart.Unauthorized, nil
	d.Part.AuthChallenges = []policypart.Challenge{{Scheme: "Bearer", Params: map[string]string{"realm": publicURL + "/policy/" + d.ID, "login": "company"}}}
	d.Logins = []string{"company"}
	d.Address, d.Proven, d.Via = "@alice@social.example", true, normalized.ViaActivityPub
	return d
}

// loggedIn is a demand for which somebody else logged in.
func loggedIn() console.Demand {
	d := login()
	d.Address, d.Proven, d.Question = "@eve@social.example", false, "What does <b>my</b> payslip say?"
	d.LoggedIn = &demand.LoggedIn{Login: "company", Address: "boss@corp.example", Name: "Boss", Subject: "user-7", Attempt: attempt, Proof: "proof"}
	return d
}

// attempt names the cookie of the state s.
var attempt = openid.AttemptName("s")

// holding is the header of a browser that has a cookie of an attempt.
func holding(attempt string) string { return "Cookie: __Host-inbox-login-" + attempt + "=binding" }

func handler(t *testing.T, d console.Demands) http.Handler {
	t.Helper()
	pages := console.NewPolicyPages(console.PolicyOptions{
		Demands: d, Agents: directory{}, PublicURL: publicURL, Mail: func(a exchange.AgentProfile) string { return a.Name + "@agents.example" },
	})
	server, err := httpserver.New(httpserver.Options{Routes: pages.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	return server.Handler()
}

// ask sends one request; header lines are "Name: value".
func ask(t *testing.T, d console.Demands, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequest(method, publicURL+path, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	handler(t, d).ServeHTTP(recorder, request)
	return recorder
}

func TestPolicyPagesAreAsWritten(t *testing.T) {
	link := consent()
	link.Purpose, link.Part.Scopes = policypart.PurposeLink, nil
	complete := link
	complete.Purpose = policypart.PurposeLinkComplete
	word := link
	word.Word = "link-abcdefghijklmnop"
	expired := consent()
	expired.Open, expired.Status = false, policypart.StatusExpired
	approved, dropped := approval(), approval()
	approved.Open, approved.Status, approved.Outcome = false, policypart.StatusResolved, policypart.OutcomeGranted
	dropped.Open, dropped.Status = false, policypart.StatusDropped
	draft := approval()
	draft.Summary, draft.Tool, draft.Preview, draft.Draft = "", "", nil, "We open at <nine>.\n\nBye."
	for name, test := range map[string]struct {
		demand console.Demand
		status int
		header []string
	}{
		"consent.html":    {consent(), http.StatusOK, nil},
		"consent-de.html": {consent(), http.StatusOK, []string{"Accept-Language: fr;q=0.3, de-AT;q=0.8"}},
		"payment.html":    {payment(), http.StatusOK, nil},
		"login.html":      {login(), http.StatusOK, nil},
		"logged-in.html":  {loggedIn(), http.StatusOK, nil},
		"link.html":       {link, http.StatusOK, nil},
		"word.html":       {word, http.StatusOK, nil},
		"complete.html":   {complete, http.StatusOK, []string{"Accept-Language: de"}},
		"expired.html":    {expired, http.StatusGone, nil},

		"approval.html":          {approval(), http.StatusOK, []string{"Accept-Language: de"}},
		"approval-reply.html":    {draft, http.StatusOK, nil},
		"approval-approved.html": {approved, http.StatusGone, nil},
		"approval-dropped.html":  {dropped, http.StatusGone, nil},
	} {
		t.Run(name, func(t *testing.T) {
			page := ask(t, &desk{demand: test.demand}, http.MethodGet, "/policy/"+state, "", test.header...)
			if page.Code != test.status {
				t.Fatalf("status %d", page.Code)
			}
			golden.Compare(t, name, assetHash.ReplaceAll(page.Body.Bytes(), []byte("/assets/HASH/")))
			checkHeaders(t, page)
		})
	}
}

func checkHeaders(t *testing.T, page *httptest.ResponseRecorder) {
	t.Helper()
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex, nofollow", "X-Content-Type-Options": "nosniff",
	} {
		if got := page.Header().Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestReadingChangesNothing(t *testing.T) {
	d := &desk{demand: payment()}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		page := ask(t, d, method, "/policy/"+state, "")
		if page.Code != http.StatusOK {
			t.Errorf("%s: status %d", method, page.Code)
		}
		checkHeaders(t, page)
	}
	ask(t, d, http.MethodGet, "/policy/"+state, "", "X-PAYMENT: e30=")
	ask(t, d, http.MethodHead, "/policy/login/callback?state=s&code=c", "", holding(attempt))
	ask(t, d, http.MethodGet, "/policy/login/callback?state=s&code=c", "")
	if len(d.calls) != 0 {
		t.Errorf("reading decided something: %v", d.calls)
	}
}

func TestDecisions(t *testing.T) {
	const jsonType = "Content-Type: application/json"
	encoded := base64.StdEncoding.EncodeToString([]byte(`{"x402Version":1}`))
	for name, test := range map[string]struct {
		demand console.Demand
		body   string
		header []string
		status int
		call   string
		holds  string
	}{
		"allow":           {consent(), "decision=grant", nil, http.StatusOK, "grant", "You agreed"},
		"decline":         {consent(), "decision=decline", nil, http.StatusOK, "decline", "You declined"},
		"nothing":         {consent(), "x=y", nil, http.StatusBadRequest, "", "Nothing was chosen yet"},
		"no body":         {consent(), "", nil, http.StatusBadRequest, "", "Nothing was chosen yet"},
		"approve":         {approval(), "decision=grant&code=7k3mq2&shown=6f3c", nil, http.StatusOK, "grant with 7k3mq2 as 6f3c", "Approved"},
		"deny":            {approval(), "decision=decline&code=7k3mq2&shown=6f3c", nil, http.StatusOK, "decline with 7k3mq2 as 6f3c", "Denied"},
		"two things":      {consent(), "decision=grant&login=company", nil, http.StatusBadRequest, "", "one of decision"},
		"json":            {consent(), `{"decision":"grant"}`, []string{jsonType, "Accept: application/json"}, http.StatusOK, "grant", `"outcome":"granted"`},
		"broken json":     {consent(), `{"decision":`, []string{jsonType, "Accept: application/json"}, http.StatusBadRequest, "", `"code":"malformed"`},
		"other type":      {consent(), `decision=grant`, []string{"Content-Type: text/plain"}, http.StatusUnsupportedMediaType, "", "Send a form"},
		"login":           {login(), "login=company", nil, http.StatusSeeOther, "login company", ""},
		"payment by form": {payment(), "decision=pay&payment=" + url.QueryEscape(encoded), nil, http.StatusOK, `pay {"x402Version":1}`, ""},
		"payment, header": {payment(), "", []string{"X-PAYMENT: " + encoded}, http.StatusOK, `pay {"x402Version":1}`, `"kind":"payment_required"`},
		"payment, json":   {payment(), `{"payment":{"a":1}}`, []string{jsonType}, http.StatusOK, `pay {"a":1}`, ""},
		"field unused":    {payment(), "decision=decline&payment=", nil, http.StatusOK, "decline", "You declined"},
		"bad payment":     {payment(), "decision=pay&payment=%21", nil, http.StatusBadRequest, "", "x402 payment payload"},
		"bad header":      {payment(), "", []string{"X-PAYMENT: []"}, http.StatusBadRequest, "", `"field":"payment"`},
		"without payment": {payment(), "", []string{"Accept: application/json"}, http.StatusPaymentRequired, "", `"x402Version":1`},
		"too large":       {consent(), strings.Repeat("x", 100_000), nil, http.StatusRequestEntityTooLarge, "", "over 65536 bytes"},
		"other site":      {consent(), "decision=grant", []string{"Sec-Fetch-Site: cross-site"}, http.StatusForbidden, "", "from another site"},
		"other origin":    {consent(), "decision=grant", []string{"Origin: https://evil.example"}, http.StatusForbidden, "", "from another site"},
		"own site":        {consent(), "decision=grant", []string{"Sec-Fetch-Site: same-origin", "Origin: null"}, http.StatusOK, "grant", "You agreed"},
		"own origin":      {consent(), "decision=grant", []string{"Origin: " + publicURL}, http.StatusOK, "grant", "You agreed"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &desk{demand: test.demand}
			page := ask(t, d, http.MethodPost, "/policy/"+state, test.body, test.header...)
			if page.Code != test.status || !strings.Contains(page.Body.String(), test.holds) {
				t.Errorf("status %d\n%s", page.Code, page.Body)
			}
			if got := strings.Join(d.calls, ", "); got != test.call {
				t.Errorf("called %q, want %q", got, test.call)
			}
			if page.Header().Get("Cache-Control") != "no-store" {
				t.Error("the answer may be cached")
			}
		})
	}
}

func TestFaultsOfADecision(t *testing.T) {
	for kind, want := range map[fault.Kind]struct {
		status int
		holds  string
	}{
		fault.NotFound:        {http.StatusNotFound, "Nothing here"},
		fault.Gone:            {http.StatusGone, "cannot be used any more"},
		fault.Conflict:        {http.StatusConflict, "Another person was faster"},
		fault.Forbidden:       {http.StatusForbidden, "not accepted"},
		fault.Unauthenticated: {http.StatusForbidden, "not accepted"},
		fault.Malformed:       {http.StatusBadRequest, "could not be read"},
		fault.Unavailable:     {http.StatusServiceUnavailable, "the reason"},
	} {
		d := nobody{&desk{err: fault.New(kind, "the reason")}}
		page := ask(t, d, http.MethodPost, "/policy/"+state, "decision=grant")
		if page.Code != want.status || !strings.Contains(page.Body.String(), want.holds) {
			t.Errorf("%s: status %d\n%s", kind, page.Code, page.Body)
		}
		answer := ask(t, d, http.MethodPost, "/policy/"+state, "decision=grant", "Accept: application/json")
		if answer.Code != want.status || !strings.Contains(answer.Body.String(), "the reason") {
			t.Errorf("%s as JSON: status %d\n%s", kind, answer.Code, answer.Body)
		}
	}
	for _, path := range []string{"/policy/x", "/policy/" + strings.Repeat("B", 43), "/policy/" + strings.Repeat("B", 44)} {
		if page := ask(t, &desk{}, http.MethodGet, path, ""); page.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, page.Code)
		}
	}
}

func TestDemandsForPrograms(t *testing.T) {
	for name, test := range map[string]struct {
		demand console.Demand
		status int
		header map[string]string
	}{
		"consent.json": {consent(), http.StatusForbidden, nil},
		"payment.json": {payment(), http.StatusPaymentRequired, nil},
		"login.json":   {login(), http.StatusUnauthorized, map[string]string{"WWW-Authenticate": `Bearer login="company", realm="` + publicURL + `/policy/` + state + `"`}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, &desk{demand: test.demand}, http.MethodGet, "/policy/"+state, "", "Accept: application/json")
			if answer.Code != test.status {
				t.Errorf("status %d", answer.Code)
			}
			for field, want := range test.header {
				if got := answer.Header().Get(field); got != want {
					t.Errorf("%s: %q", field, got)
				}
			}
			golden.Compare(t, name, answer.Body.Bytes())
		})
	}
	over := consent()
	over.Open, over.Status = false, policypart.StatusExpired
	if answer := ask(t, &desk{demand: approval()}, http.MethodGet, "/policy/"+state, "", "Accept: application/json"); !strings.Contains(answer.Body.String(), `"shown":"6f3c"`) {
		t.Errorf("a program cannot say what it was shown: %s", answer.Body)
	}
	if answer := ask(t, &desk{demand: over}, http.MethodGet, "/policy/"+state, "", "Accept: application/json"); answer.Code != http.StatusGone {
		t.Errorf("expired: status %d", answer.Code)
	}
}

func TestLogin(t *testing.T) {
	d := &desk{demand: login()}
	page := ask(t, d, http.MethodGet, "/policy/"+state, "")
	if policy := page.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "form-action 'self' https:;") {
		t.Errorf("the browser would not follow to the login service: %s", policy)
	}
	begin := ask(t, d, http.MethodPost, "/policy/"+state, "login=company")
	const cookie = "__Host-inbox-login-abcd=binding; Path=/; Max-Age=600; HttpOnly; Secure; SameSite=Lax"
	if begin.Header().Get("Set-Cookie") != cookie || begin.Header().Get("Location") != "https://login.example/authorize?state=x" {
		t.Errorf("%v", begin.Header())
	}
	d.calls = nil
	back := ask(t, d, http.MethodGet, "/policy/login/callback?state=s&code=c", "", holding(attempt), "Sec-Fetch-Site: cross-site")
	if back.Code != http.StatusOK || strings.Join(d.calls, "") != "finish s c binding" || !strings.Contains(back.Header().Get("Set-Cookie"), attempt+"=; Path=/; Max-Age=0") {
		t.Errorf("status %d, %v, %v", back.Code, d.calls, back.Header())
	}
	d.calls = nil
	for name, stray := range map[string]struct {
		query  string
		cookie string
		status int
		holds  string
	}{
		"without a code":        {"state=s", attempt, http.StatusBadRequest, "begin the login again"},
		"two codes":             {"state=s&code=c&code=d", attempt, http.StatusBadRequest, "begin the login again"},
		"cookie of another tab": {"state=s&code=c", openid.AttemptName("t"), http.StatusForbidden, "open the link of the message again"},
	} {
		page := ask(t, d, http.MethodGet, "/policy/login/callback?"+stray.query, "", holding(stray.cookie))
		if page.Code != stray.status || !strings.Contains(page.Body.String(), stray.holds) || page.Header().Get("Set-Cookie") != "" || len(d.calls) > 0 {
			t.Errorf("%s: status %d, %v\n%s", name, page.Code, d.calls, page.Body)
		}
	}
	d.err = fault.New(fault.Forbidden, "the proof could not be verified")
	turned := ask(t, d, http.MethodGet, "/policy/login/callback?state=s&error=access_denied&code=c", "", holding(attempt))
	if turned.Code != http.StatusForbidden || strings.Join(d.calls, "") != "finish s  binding" {
		t.Errorf("status %d, %v", turned.Code, d.calls)
	}
	for _, want := range []string{"The proof could not be verified.", `action="/policy/` + state + `"`, "Log in with company"} {
		if !strings.Contains(turned.Body.String(), want) {
			t.Errorf("who turned back at the login service sees no %q", want)
		}
	}
}

// TestTheLastPageOfALogin: nothing but its form decides, in the browser that logged in and on our own page.
func TestTheLastPageOfALogin(t *testing.T) {
	d := &desk{demand: loggedIn()}
	page := ask(t, d, http.MethodGet, "/policy/login/callback?state=s&code=c", "", holding(attempt))
	body := page.Body.String()
	for _, want := range []string{
		"boss@corp.example", "@eve@social.example", "not proven", "payslip", "Fediverse", `action="/policy/` + state + `"`, `name="proof" value="proof"`, `name="attempt" value="` + attempt + `"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Index(body, `value="decline"`) > strings.Index(body, `value="grant"`) {
		t.Error("the return key agrees")
	}
	if !strings.Contains(page.Header().Get("Set-Cookie"), attempt+"=binding; Path=/; Max-Age=600") || strings.Contains(page.Header().Get("Content-Security-Policy"), "form-action 'self' https:") {
		t.Errorf("%v", page.Header())
	}

	d.calls = nil
	program := ask(t, d, http.MethodGet, "/policy/login/callback?state=s&code=c", "", holding(attempt), "Accept: application/json")
	if text := program.Body.String(); program.Code != http.StatusForbidden || !strings.Contains(text, policypart.CodePrincipal) || strings.Contains(text, `"proof"`) || strings.Contains(text, "boss") {
		t.Errorf("a program gets %d\n%s", program.Code, text)
	}

	form := "attempt=" + attempt + "&proof=proof&decision="
	for name, c := range map[string]struct {
		body   string
		header []string
		status int
		call   string
	}{
		"yes":            {form + "grant", []string{holding(attempt)}, http.StatusOK, "confirm proof binding true"},
		"no":             {form + "decline", []string{holding(attempt)}, http.StatusOK, "confirm proof binding false"},
		"no button":      {form, []string{holding(attempt)}, http.StatusBadRequest, ""},
		"no cookie":      {form + "grant", nil, http.StatusOK, "confirm proof  true"}, // ConfirmLogin refuses it
		"another tab":    {form + "grant", []string{holding("other")}, http.StatusOK, "confirm proof  true"},
		"another site":   {form + "grant", []string{holding(attempt), "Sec-Fetch-Site: cross-site"}, http.StatusForbidden, ""},
		"program":        {`{"decision":"grant","proof":"proof","attempt":"` + attempt + `"}`, []string{holding(attempt), "Content-Type: application/json"}, http.StatusOK, "grant"}, // Decide refuses it
		"and a login":    {form + "grant&login=company", []string{holding(attempt)}, http.StatusBadRequest, ""},
		"another origin": {form + "grant", []string{holding(attempt), "Origin: https://evil.example"}, http.StatusForbidden, ""},
	} {
		d := &desk{demand: login()}
		answer := ask(t, d, http.MethodPost, "/policy/"+state, c.body, c.header...)
		if got := strings.Join(d.calls, ", "); answer.Code != c.status || got != c.call {
			t.Errorf("%s: status %d, called %q", name, answer.Code, got)
		}
	}
}

// TestAForwardedLinkIsRecognized: before the login the page says whose message it is about, and nothing of the message.
func TestAForwardedLinkIsRecognized(t *testing.T) {
	d := login()
	d.Address, d.Proven, d.Part.SamePerson, d.Question = "@eve@social.example", false, true, "my payslip"
	body := ask(t, &desk{demand: d}, http.MethodGet, "/policy/"+state, "").Body.String()
	for _, want := range []string{"@eve@social.example", "This address is not proven", "accepts only a login of this sender", "If someone sent you this link"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(body, "payslip") {
		t.Error("the question is shown before the login")
	}
}

func TestARefusedPaymentShowsTheTermsAgain(t *testing.T) {
	d := &desk{demand: payment(), err: fault.Wrap(fault.Forbidden, "this is not what was asked for", &policypart.Refusal{Code: policypart.CodeTerms})}
	answer := ask(t, d, http.MethodPost, "/policy/"+state, "", "X-PAYMENT: e30=")
	if body := answer.Body.String(); answer.Code != http.StatusPaymentRequired || !strings.Contains(body, `"error":"this is not what was asked for"`) || !strings.Contains(body, `"accepts":[{`) {
		t.Errorf("status %d\n%s", answer.Code, body)
	}
	d.demand.Open, d.demand.Status = false, policypart.StatusDenied
	answer = ask(t, d, http.MethodPost, "/policy/"+state, "", "X-PAYMENT: e30=")
	if answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), `"code":"state:terms"`) {
		t.Errorf("status %d\n%s", answer.Code, answer.Body)
	}
}

func TestReadersOfEnglishGetTheAgentsWords(t *testing.T) {
	for header, want := range map[string]string{
		"": "May I read", "en-GB, de;q=0.5": "May I read", "de-CH": "Darf ich", "DE": "Darf ich", "ja, de;q=0": "May I read", "fr, *;q=0.1, de;q=0.2": "Darf ich",
	} {
		page := ask(t, &desk{demand: consent()}, http.MethodGet, "/policy/"+state, "", "Accept-Language: "+header)
		if !strings.Contains(page.Body.String(), want) {
			t.Errorf("%q: no %q", header, want)
		}
	}
	d := consent()
	d.Locale = "de-DE"
	if page := ask(t, &desk{demand: d}, http.MethodGet, "/policy/"+state, ""); !strings.Contains(page.Body.String(), "Darf ich") {
		t.Error("the asker's own language is not used")
	}
}
