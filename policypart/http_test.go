package policypart

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
