package a2a

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/webtoken"
)

// TestScopesInCards: cards are as the .proto file of 1.0 has them, for the Go SDK as that reads them, and signed in both
// forms; each form is cached by itself.
func TestScopesInCards(t *testing.T) {
	b, issuer := withIssuer(t)
	keys := identity.KeySet([]identity.PublicKey{issuer.card.Public()})
	ways := map[string]func(program string) reply{
		"public": func(p string) reply {
			return b.do("GET", "/a2a/echo/.well-known/agent-card.json", "", "", "User-Agent", p)
		},
		"origin's": func(p string) reply { return b.do("GET", "/.well-known/agent-card.json", "", "", "User-Agent", p) },
		"REST": func(p string) reply {
			return b.do("GET", "/a2a/echo/rest/extendedAgentCard", b.ada, "", "User-Agent", p)
		},
		"JSON-RPC": func(p string) reply {
			r := b.rpc(b.ada, "GetExtendedAgentCard", "{}", "User-Agent", p)
			r.body = string(r.decode(t).Result)
			return r
		},
	}
	for name, read := range ways {
		of1, ofGo := read("python-httpx/0.28"), read("Go-http-client/1.1")
		var card pb.AgentCard
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(of1.body), &card); err != nil {
			t.Errorf("%s: %v: %s", name, err, of1.body)
		}
		if scopes := card.GetSecurityRequirements()[2].GetSchemes()["openid"].GetList(); strings.Join(scopes, " ") != strings.Join(allScopes, " ") {
			t.Errorf("%s: scopes %v", name, scopes)
		}
		var sdk a2a.AgentCard
		if err := json.Unmarshal([]byte(ofGo.body), &sdk); err != nil || len(sdk.SecurityRequirements[2]["openid"]) != len(allScopes) {
			t.Errorf("%s: the Go SDK reads %+v (%v)", name, sdk.SecurityRequirements, err)
		}
		for _, r := range []reply{of1, ofGo} {
			if err := webtoken.VerifyCard([]byte(r.body), keys); err != nil {
				t.Errorf("%s: %v: %s", name, err, r.body)
			}
		}
		if tag := of1.header.Get("ETag"); tag != "" && (tag == ofGo.header.Get("ETag") || of1.header.Get("Vary") != "User-Agent" ||
			of1.header.Get("Last-Modified") != read("python-httpx/0.28").header.Get("Last-Modified")) {
			t.Errorf("%s: %v", name, of1.header)
		}
	}
}

// TestExtendedCardsDifferByCaller: a skill that a rule is about is in no public card, and in the extended one of whom the
// rule lets in, on every binding; each of them is signed.
func TestExtendedCardsDifferByCaller(t *testing.T) {
	b, issuer := withIssuer(t)
	agent := &b.engine.agents[0]
	agent.Skills = []exchange.Skill{{ID: "open", Name: "Open"}, {ID: "secret", Name: "Secret"}}
	agent.IdentityPolicy = &identity.AccessPolicy{Access: identity.AccessPublic, Rules: []identity.Rule{
		{Effect: identity.EffectAllow, Purposes: []string{"skill:secret"}, Subject: loginIssuer + "#cy"},
		{Effect: identity.EffectDeny, Purposes: []string{"skill:secret"}},
	}}
	if err := agent.IdentityPolicy.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/a2a/echo/.well-known/agent-card.json", "/.well-known/agent-card/echo"} {
		if card := b.do("GET", path, "", ""); !strings.Contains(card.body, `"open"`) || strings.Contains(card.body, `"secret"`) {
			t.Errorf("%s: %s", path, card.body)
		}
	}
	keys := identity.KeySet([]identity.PublicKey{issuer.card.Public()})
	for name, c := range map[string]struct {
		token string
		sees  bool
	}{"of the rule": {issuer.token(nil), true}, "somebody else": {issuer.token(map[string]any{"sub": "di"}), false}, "with our token": {b.ada, false}} {
		rpc := b.rpc(c.token, "GetExtendedAgentCard", "{}").decode(t).Result
		for binding, body := range map[string]string{
			"JSON-RPC": string(rpc), "REST": b.do("GET", "/a2a/echo/rest/extendedAgentCard", c.token, "").body,
		} {
			if !strings.Contains(body, `"open"`) || strings.Contains(body, `"secret"`) != c.sees {
				t.Errorf("%s by %s: %s", name, binding, body)
			}
			if err := webtoken.VerifyCard([]byte(body), keys); err != nil {
				t.Errorf("%s by %s: %v", name, binding, err)
			}
		}
		if old := b.rpc(c.token, "agent/getAuthenticatedExtendedCard", "{}").body; strings.Contains(old, `"secret"`) != c.sees {
			t.Errorf("%s by 0.3: %s", name, old)
		}
	}
}
