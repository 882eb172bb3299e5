package policypart

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/identity"
)

var (
	issued = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	alice  = Resolver{Issuer: "agents.test", Subject: "https://social.test/alice", Method: "ap"}
	slack  = Resolver{Issuer: "agents.test", Subject: "token:1", Method: "a2a"} // a Connector's own, shared by all its users
)

func issuance(t testing.TB) Issuance {
	t.Helper()
	part := Part{Kind: ConsentRequired, Message: "May I?", Scopes: []string{"mail"}}
	action, err := part.Terms()
	if err != nil {
		t.Fatal(err)
	}
	return Issuance{
		ID: "1", StateHash: HashState("secret"), TurnID: "turn", Agent: "a", ThreadID: "thread", Principal: "agents.test https://social.test/alice",
		Asker: []Resolver{alice}, Kind: part.Kind, Part: part, Action: action, IssuedAt: issued, ExpiresAt: issued.Add(time.Hour), Status: StatusIssued,
	}
}

func attempt() Attempt {
	return Attempt{
		State: "secret", Agent: "a", ThreadID: "thread", TurnID: "turn", Principal: "agents.test https://social.test/alice",
		Resolvers: []Resolver{alice}, Kind: ConsentRequired, At: issued.Add(time.Minute),
	}
}

// breakages break one check each, in the order of the checks.
var breakages = []struct {
	code, name string
	change     func(*Issuance, *Attempt)
}{
	{CodeUnknown, "state", func(_ *Issuance, a *Attempt) { a.State = "guess" }},
	{CodeUnknown, "no row", func(i *Issuance, _ *Attempt) { *i = Issuance{} }},
	{CodeAgent, "agent", func(_ *Issuance, a *Attempt) { a.Agent = "b" }},
	{CodeThread, "thread", func(_ *Issuance, a *Attempt) { a.ThreadID = "other" }},
	{CodeThread, "task", func(_ *Issuance, a *Attempt) { a.TurnID = "other" }},
	{CodePrincipal, "subject", func(_ *Issuance, a *Attempt) {
		a.Resolvers = []Resolver{{alice.Issuer, "https://social.test/bob", alice.Method}}
	}},
	{CodePrincipal, "method", func(_ *Issuance, a *Attempt) { a.Resolvers = []Resolver{{alice.Issuer, alice.Subject, "other"}} }},
	{CodePrincipal, "somebody whom the asker brings", func(_ *Issuance, a *Attempt) {
		a.Principal, a.Resolvers = "slack slack:T1/U2", []Resolver{slack, alice}
	}},
	{CodePrincipal, "nobody", func(_ *Issuance, a *Attempt) { a.Resolvers = nil }},
	{CodePrincipal, "another user of the Connector", func(i *Issuance, a *Attempt) { i.Asker, a.Resolvers = []Resolver{slack, alice}, []Resolver{slack} }},
	{CodePrincipal, "envelope about somebody else", func(_ *Issuance, a *Attempt) { a.Resolver = &slack }},
	{CodePrincipal, "unverified name", func(i *Issuance, a *Attempt) { i.Asker, i.Principal = nil, "unverified @a@b" }},
	{CodeExpired, "time", func(i *Issuance, a *Attempt) { a.At = i.ExpiresAt }},
	{CodeExpired, "swept", func(i *Issuance, _ *Attempt) { i.Status = StatusExpired }},
	{CodeUsed, "claimed", func(i *Issuance, _ *Attempt) { i.Status = StatusClaimed }},
	{CodeUsed, "resolved", func(i *Issuance, _ *Attempt) { i.Status = StatusResolved }},
	{CodeUsed, "denied", func(i *Issuance, _ *Attempt) { i.Status = StatusDenied }},
	{CodeUsed, "dropped", func(i *Issuance, _ *Attempt) { i.Status = StatusDropped }},
	{CodeTerms, "stored part", func(i *Issuance, _ *Attempt) { i.Part.Scopes = []string{"mail", "money"} }},
	{CodeTerms, "kind", func(_ *Issuance, a *Attempt) { a.Kind = PaymentRequired }},
	{CodeTerms, "terms", func(_ *Issuance, a *Attempt) { a.Terms = "0" }},
	{CodeProof, "proof", func(_ *Issuance, a *Attempt) { a.Unproven = "bad signature" }},
}

func TestEveryCheckHasItsCode(t *testing.T) {
	if refusal := issuance(t).Check(attempt()); refusal != nil {
		t.Fatal(refusal)
	}
	for _, b := range breakages {
		i, a := issuance(t), attempt()
		b.change(&i, &a)
		refusal := i.Check(a)
		if refusal == nil || refusal.Code != b.code || !strings.HasPrefix(refusal.Error(), b.code+": ") {
			t.Errorf("%s: %v, want %s", b.name, refusal, b.code)
		}
	}
}

// The first failure wins, whatever else is wrong.
func TestChecksKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, a := issuance(&testing.T{}), attempt()
		chosen := rapid.SliceOfNDistinct(rapid.IntRange(0, len(breakages)-1), 1, 3, func(n int) string { return breakages[n].code }).Draw(t, "broken")
		slices.Sort(chosen)
		first := chosen[0]
		for _, n := range slices.Backward(chosen) { // two of them write the status: the earlier check's change stays
			breakages[n].change(&i, &a)
		}
		if refusal := i.Check(a); refusal == nil || refusal.Code != breakages[first].code {
			t.Fatalf("%v, want %s", refusal, breakages[first].code)
		}
	})
}

func TestWhoMayResolve(t *testing.T) {
	for name, change := range map[string]func(*Issuance, *Attempt){
		"holder of the state": func(_ *Issuance, a *Attempt) { *a = Attempt{State: "secret", Bearer: true, At: a.At} },
		"all identities": func(i *Issuance, a *Attempt) {
			i.Asker, a.Resolvers = []Resolver{slack, alice}, []Resolver{alice, slack}
		},
		"envelope about the asker": func(i *Issuance, a *Attempt) {
			i.Asker, a.Resolver, a.Resolvers = []Resolver{slack, alice}, &alice, nil
		},
		"the same unverified sender": func(i *Issuance, a *Attempt) {
			i.Asker, i.Principal, a.Resolvers, a.Principal = nil, "unverified @a@b", nil, "unverified @a@b"
		},
		"the agent in other letters":   func(_ *Issuance, a *Attempt) { a.Agent = "A" },
		"a message without a task":     func(_ *Issuance, a *Attempt) { a.TurnID = "" },
		"a moment before it is over":   func(i *Issuance, a *Attempt) { a.At = i.ExpiresAt.Add(-1) },
		"the very terms":               func(i *Issuance, a *Attempt) { a.Terms = i.Action },
		"a resolution without kind":    func(_ *Issuance, a *Attempt) { a.Kind = "" },
		"somebody with more than that": func(_ *Issuance, a *Attempt) { a.Resolvers = append(a.Resolvers, slack) },
	} {
		i, a := issuance(t), attempt()
		change(&i, &a)
		if refusal := i.Check(a); refusal != nil {
			t.Errorf("%s: %v", name, refusal)
		}
	}
}

func TestTermsAreAboutWhatIsAskedForAndNotHowItIsWritten(t *testing.T) {
	base := Part{
		Kind: PaymentRequired, Message: "Pay", Amount: "1", Currency: "EUR", Scopes: []string{"s"},
		Accepts:        []json.RawMessage{json.RawMessage(`{"payTo":"x","amount":"<1>"}`)},
		AuthChallenges: []Challenge{{Scheme: "Bearer", Params: map[string]string{"realm": "r"}}},
	}
	hash := func(p Part) string {
		t.Helper()
		terms, err := p.Terms()
		if err != nil {
			t.Fatal(err)
		}
		return terms
	}
	same := base
	same.Message, same.Title, same.URL, same.ExpiresAt = "Bezahle", "T", "https://agents.test/policy/1", &identity.Time{}
	same.Accepts = []json.RawMessage{json.RawMessage(`{ "amount":"\u003c1>" , "payTo" : "x" }`)}
	if hash(same) != hash(base) {
		t.Error("wording or white space changed the terms")
	}
	for name, change := range map[string]func(*Part){
		"kind": func(p *Part) { p.Kind = ConsentRequired }, "amount": func(p *Part) { p.Amount = "2" }, "currency": func(p *Part) { p.Currency = "USD" },
		"code": func(p *Part) { p.Code = "x" }, "scopes": func(p *Part) { p.Scopes = nil },
		"payee":      func(p *Part) { p.Accepts = []json.RawMessage{json.RawMessage(`{"payTo":"y","amount":"<1>"}`)} },
		"challenges": func(p *Part) { p.AuthChallenges = nil },
	} {
		other := base
		change(&other)
		if hash(other) == hash(base) {
			t.Errorf("%s does not count", name)
		}
	}
	if _, err := (Part{Accepts: []json.RawMessage{json.RawMessage(`{"a":1e999}`)}}).Terms(); err == nil {
		t.Error("a number that has no canonical form")
	}
}

func TestPartOverHTTP(t *testing.T) {
	seconds := int64(30)
	part := Part{
		Kind: Unauthorized, Message: "Log in",
		AuthChallenges: []Challenge{
			{Scheme: "Bearer", Params: map[string]string{"realm": `a "b" \c`, "login": "staff"}},
			{Scheme: "Basic"}, {Scheme: "Bad Scheme"}, {Scheme: "X\r\nSet-Cookie: a"},
			{Scheme: "DPoP", Params: map[string]string{"a b": "x", "algs": "ES256\r\nX: y ü"}},
		},
		RetryAfterSeconds: &seconds, BlockedBy: "https://law.test/?a=<b>",
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "Cache-Control": {"no-store"},
		"Www-Authenticate": {`Bearer login="staff", realm="a \"b\" \\c"`, "Basic", `DPoP algs="ES256??X: y ?"`},
		"Retry-After":      {"30"},
		"Link":             {`<https://law.test/?a=%3Cb%3E>; rel="blocked-by"`},
	}
	if diff := cmp.Diff(want, part.HTTPHeader()); diff != "" {
		t.Error(diff)
	}
	body, err := part.HTTPBody("@a@agents.test")
	if err != nil || !strings.HasPrefix(string(body), `{"v":"v0.1","agent":"@a@agents.test","parts":[{"kind":"policy","policy":{"kind":"unauthorized",`) || !json.Valid(body) {
		t.Errorf("%s %v", body, err)
	}
	for _, blocker := range []string{"", "law.test", "https://law.test/\r\nX: y", "%"} {
		if header := (Part{BlockedBy: blocker}).HTTPHeader(); header.Get("Link") != "" || header.Get("Retry-After") != "" {
			t.Errorf("%q: %v", blocker, header)
		}
	}
}

func TestPlainHTTPOnOurOwnOriginOnly(t *testing.T) {
	base, _ := url.Parse("http://127.0.0.1:8080")
	for address, stays := range map[string]bool{
		"http://127.0.0.1:8080/policy/x": true, "https://127.0.0.1:8080/policy/x": false, "http://127.0.0.1/policy/x": false,
		"http://u@127.0.0.1:8080/": false, "http:///policy": false, "http://127.0.0.1:8080.evil.test/": false,
	} {
		part := Part{Kind: ConsentRequired, Message: "m", URL: address}
		if got := part.Confine(base).URL == address; got != stays {
			t.Errorf("%s: kept %t", address, got)
		}
		if got := part.CheckWithin(base) == nil; got != stays {
			t.Errorf("%s: within %t", address, got)
		}
	}
	plain, _ := url.Parse("http://agents.test")
	if got := (Part{URL: "http://agents.test:80/x"}).Confine(plain); got.URL == "" {
		t.Error("the default port of http is 80")
	}
	if found := (Part{Kind: "x", URL: "http://127.0.0.1:8080/"}).CheckWithin(base); found == nil || found.Field != "message" {
		t.Errorf("%v", found)
	}
}
