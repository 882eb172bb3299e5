package policypart

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/identity"
)

const demand = `{"kind":"unauthorized","code":"oauth:login_required","title":"Log in","message":"Please log in.",` +
	`"message_translations":{"de":{"title":"Anmelden","message":"Bitte anmelden."}},"url":"https://agents.test/policy/x",` +
	`"action_label":"Log in","data":{"com.example.order":{"id":7}},"auth_challenges":[{"realm":"agents","scheme":"Bearer"}],"x_new":[1]}`

func read(t *testing.T, text string) (p Part) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPartRoundTrip(t *testing.T) {
	p := read(t, demand)
	if p.AuthChallenges[0].Scheme != "Bearer" || p.AuthChallenges[0].Params["realm"] != "agents" {
		t.Errorf("%+v", p.AuthChallenges)
	}
	if found := p.Check(); found != nil {
		t.Error(found)
	}
	body, err := json.Marshal(p)
	if err != nil || string(body) != demand {
		t.Errorf("%v\n%s\n%s", err, body, demand)
	}
}

func TestChallengeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Challenge{Scheme: rapid.StringMatching(`[A-Za-z]{1,9}`).Draw(t, "scheme")}
		for range rapid.IntRange(0, 3).Draw(t, "params") {
			c.set(rapid.StringMatching(`[a-z_]{1,5}`).Filter(func(s string) bool { return s != "scheme" }).Draw(t, "name"), rapid.String().Draw(t, "value"))
		}
		body, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back Challenge
		if err := json.Unmarshal(body, &back); err != nil || cmp.Diff(c, back) != "" {
			t.Fatal(cmp.Diff(c, back), err)
		}
	})
	var c Challenge
	if err := json.Unmarshal([]byte(`{"scheme":"Basic","realm":null}`), &c); err != nil || c.Params != nil {
		t.Errorf("%+v %v", c, err)
	}
	if json.Unmarshal([]byte(`{"scheme":1}`), &c) == nil || json.Unmarshal([]byte(`[]`), &c) == nil {
		t.Error("accepted")
	}
}

func TestCheckNamesTheRule(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Part)
		field  string
	}{
		"kind":               {func(p *Part) { p.Kind = "" }, "kind"},
		"message":            {func(p *Part) { p.Message = " \n" }, "message"},
		"long message":       {func(p *Part) { p.Message = strings.Repeat("x", 17<<10) }, "message"},
		"message UTF-8":      {func(p *Part) { p.Message = "\xff" }, "message"},
		"code":               {func(p *Part) { p.Code = "a\nb" }, "code"},
		"title":              {func(p *Part) { p.Title = strings.Repeat("x", 1025) }, "title"},
		"translation":        {func(p *Part) { p.MessageTranslations = map[string]Translation{"fr": {}} }, "message_translations.fr.message"},
		"url http":           {func(p *Part) { p.URL = "http://agents.test/" }, "url"},
		"url relative":       {func(p *Part) { p.URL = "/policy/x" }, "url"},
		"url user":           {func(p *Part) { p.URL = "https://a:b@agents.test/" }, "url"},
		"data key":           {func(p *Part) { p.Data = map[string]json.RawMessage{"order": json.RawMessage("1")} }, "data"},
		"data":               {func(p *Part) { p.Data = map[string]json.RawMessage{"a.b": json.RawMessage("{")} }, "data.a.b"},
		"accepts":            {func(p *Part) { p.Accepts = []json.RawMessage{json.RawMessage("{")} }, "accepts[0]"},
		"scope":              {func(p *Part) { p.Scopes = []string{"a", ""} }, "scopes[1]"},
		"no challenge":       {func(p *Part) { p.AuthChallenges = nil }, "auth_challenges"},
		"challenge scheme":   {func(p *Part) { p.AuthChallenges = []Challenge{{}} }, "auth_challenges[0].scheme"},
		"payment without":    {func(p *Part) { p.Kind = PaymentRequired }, "expires_at"},
		"rate without retry": {func(p *Part) { p.Kind = TooManyRequests }, "retry_after_seconds"},
		"negative retry":     {func(p *Part) { p.RetryAfterSeconds = new(int64); *p.RetryAfterSeconds = -1 }, "retry_after_seconds"},
		"large": {func(p *Part) {
			p.Data = map[string]json.RawMessage{"a.b": json.RawMessage(`"` + strings.Repeat("x", 65<<10) + `"`)}
		}, ""},
	} {
		p := read(t, demand)
		c.change(&p)
		found := p.Check()
		if found == nil || found.Field != c.field || found.Rule == "" || found.TooLarge != (name == "large") {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

func TestUnknownKindIsKeptAndNoSuccess(t *testing.T) {
	p := read(t, `{"kind":"captcha_required","message":"Are you human?","site_key":"k"}`)
	if found := p.Check(); found != nil {
		t.Error(found)
	}
	if Resumable(p.Kind) || ResponseStatus(p.Kind) != ResponseFailed || HTTPStatus(p.Kind) != 403 || string(p.Extra["site_key"]) != `"k"` {
		t.Errorf("%+v", p)
	}
}

func TestKinds(t *testing.T) {
	for kind, want := range map[string]struct {
		http   int
		status string
	}{
		ConsentRequired: {403, ResponseInputRequired}, Unauthorized: {401, ResponseInputRequired}, PaymentRequired: {402, ResponseInputRequired},
		Forbidden: {403, ResponseFailed}, TooManyRequests: {429, ResponseFailed}, UnavailableForLegalReasons: {451, ResponseFailed},
		ServiceUnavailable: {503, ResponseFailed},
	} {
		if HTTPStatus(kind) != want.http || ResponseStatus(kind) != want.status {
			t.Errorf("%s: %d %s", kind, HTTPStatus(kind), ResponseStatus(kind))
		}
	}
}

func TestConfine(t *testing.T) {
	base, _ := url.Parse("https://agents.test")
	for address, stays := range map[string]bool{
		"https://agents.test/policy/x": true, "https://AGENTS.test:443/policy": true, "": true,
		"https://agents.test:8443/": false, "http://agents.test/": false, "https://agents.test.evil/": false, "https://agents.test@evil/": false,
		"https://u@agents.test/": false, "//agents.test/": false, "javascript:alert(1)": false, "https:agents.test": false, "%": false,
	} {
		got := Part{Message: "m", Code: "a:b", URL: address}.Confine(base)
		if stays != (got.URL == address) || stays != (got.Code == "a:b") {
			t.Errorf("%q: %+v", address, got)
		}
		if twice := got.Confine(base); twice.Code != got.Code {
			t.Errorf("%q: not stable: %s", address, twice.Code)
		}
	}
	if got := (Part{URL: "https://x.test"}).Confine(nil); got.URL != "" || got.Code != "url-removed" {
		t.Errorf("%+v", got)
	}
}

func TestTextInTheReadersLanguage(t *testing.T) {
	p := read(t, demand)
	expires := identity.At(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	p.ExpiresAt = &expires
	const want = "Anmelden\n\nBitte anmelden.\n\nLog in: https://agents.test/policy/x\n\nValid until 2026-11-21 12:00:00 UTC."
	if got := p.Text("de-AT"); got != want {
		t.Errorf("%q", got)
	}
	if got := p.Text("fr"); !strings.HasPrefix(got, "Log in\n\nPlease log in.\n\n") {
		t.Errorf("%q", got)
	}
}

func TestResolutionCheck(t *testing.T) {
	good := Resolution{Kind: ConsentRequired, Outcome: OutcomeDenied, ResolvedAt: identity.Now(), ResolvedBy: &Resolver{Issuer: "i", Subject: "s", Method: "m"}}
	if found := good.Check(); found != nil {
		t.Error(found)
	}
	for field, change := range map[string]func(*Resolution){
		"kind":        func(r *Resolution) { r.Kind = "" },
		"outcome":     func(r *Resolution) { r.Outcome = "" },
		"resolved_at": func(r *Resolution) { r.ResolvedAt = identity.Time{} },
		"resolved_by": func(r *Resolution) { r.ResolvedBy = &Resolver{} },
		"receipt":     func(r *Resolution) { r.Receipt = strings.Repeat("x", 3000) },
	} {
		r := good
		change(&r)
		if found := r.Check(); found == nil || found.Field != field {
			t.Errorf("%s: %+v", field, found)
		}
	}
}

func FuzzPart(f *testing.F) {
	f.Add([]byte(demand))
	f.Add([]byte(`{"kind":"x","message":"m","auth_challenges":[{}],"data":{"a.b":null},"accepts":[null]}`))
	f.Add([]byte(`{"kind":"payment_required","message":"Pay","accepts":[{"payTo":"<x>","amount":"1"}],"amount":"1","currency":"EUR","expires_at":"2026-11-21T12:00:00+01:00","x":{"a":1e3}}`))
	f.Add([]byte(`{"kind":"too_many_requests","message":"Later","retry_after_seconds":30,"blocked_by":"https://law.test/"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Part
		if json.Unmarshal(data, &p) != nil {
			return
		}
		good := p.Check() == nil
		_ = p.Text("de")
		_ = p.HTTPHeader()
		body, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again Part
		if err := json.Unmarshal(body, &again); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(body) {
			t.Fatalf("not stable: %v\n%s\n%s", err, body, twice)
		}
		if good && again.Check() != nil {
			t.Fatalf("not good any more: %v", again.Check())
		}
		one, oneErr := p.Terms()
		if two, err := again.Terms(); (err == nil) != (oneErr == nil) || one != two {
			t.Fatalf("terms changed: %v %v", oneErr, err)
		}
	})
}

func TestApproval(t *testing.T) {
	tests := map[string]struct {
		data string
		want Approval
	}{
		"whole": {
			`{"action_id":"a1","tool":"refund","summary":"Refund order 17","preview":{"amount":5},"apply_input":{"order":17}}`,
			Approval{"a1", "refund", "Refund order 17", json.RawMessage(`{"amount":5}`), json.RawMessage(`{"order":17}`)},
		},
		"in the words of audit events": {`{"action_id":"a1","tool_name":"refund"}`, Approval{ActionID: "a1", Tool: "refund", Summary: "May I?"}},
		"nulls":                        {`{"summary":" ","preview":null}`, Approval{Summary: "May I?"}},
		"another form":                 {`["refund"]`, Approval{Summary: "May I?"}},
		"nothing":                      {``, Approval{Summary: "May I?"}},
	}
	for name, test := range tests {
		part := Part{Kind: ConsentRequired, Code: CodeApproval, Message: "May I?"}
		if test.data != "" {
			part.Data = map[string]json.RawMessage{ApprovalKey: json.RawMessage(test.data)}
		}
		if diff := cmp.Diff(test.want, part.Approval()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNeedsApproval(t *testing.T) {
	if !(Part{Kind: ConsentRequired, Code: CodeApproval}).NeedsApproval() {
		t.Error("approval:required of a consent is decided by its asker")
	}
	for _, part := range []Part{{Kind: ConsentRequired}, {Kind: PaymentRequired, Code: CodeApproval}, {Kind: ConsentRequired, Code: CodeApprovalReply}} {
		if part.NeedsApproval() {
			t.Errorf("%s %q is decided by an approver", part.Kind, part.Code)
		}
	}
}
