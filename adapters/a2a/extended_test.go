package a2a

import (
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/webtoken"
)

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
