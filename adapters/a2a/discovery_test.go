package a2a

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"inbox/exchange"
	"inbox/identity"
)

func TestCards(t *testing.T) {
	b := setup(t)
	b.engine.agents[0] = exchange.AgentProfile{
		Name: "echo", Address: "@echo@agents.test", DisplayName: "Echo", Summary: "Says what you say.", Version: "1.2.3",
		Skills: []exchange.Skill{{ID: "echo", Name: "Echo", Description: "Repeats a message.", Examples: []string{"hi"}}},
		IdentityPolicy: &identity.AccessPolicy{Access: identity.AccessRules, Rules: []identity.Rule{{
			Effect: identity.EffectAllow, Issuer: "a.example", Method: methodAgent, Assurance: []string{identity.AssuranceAgent},
		}}},
	}
	card := b.do("GET", "/a2a/echo/.well-known/agent-card.json", "", "", "Host", "evil.test")
	golden(t, "card.json", card.body)
	for _, path := range []string{"/.well-known/agent-card.json", "/.well-known/agent.json", "/a2a/echo/.well-known/agent.json"} {
		if got := b.do("GET", path, "", ""); got.body != card.body {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	golden(t, "card-mentionable.json", b.do("GET", "/.well-known/agent-card/echo", "", "").body)

	if cors := card.header.Get("Access-Control-Allow-Origin"); cors != "*" || card.header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("CORS %q", cors)
	}
	tag := card.header.Get("ETag")
	if r := b.do("GET", "/a2a/echo/.well-known/agent-card.json", "", "", "If-None-Match", tag); r.status != 304 || r.body != "" {
		t.Errorf("If-None-Match %s: %d", tag, r.status)
	}
	if head := b.do("HEAD", "/a2a/echo/.well-known/agent-card.json", "", ""); head.status != 200 || head.body != "" || head.header.Get("ETag") != tag {
		t.Errorf("HEAD: %d %v", head.status, head.header)
	}
	if !strings.Contains(card.header.Get("Cache-Control"), "max-age") || strings.HasPrefix(tag, "W/") {
		t.Errorf("headers %v", card.header)
	}
	for _, path := range []string{"/a2a/nobody/.well-known/agent-card.json", "/.well-known/agent-card/nobody"} {
		if got := b.do("GET", path, "", ""); got.status != 404 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if got := b.do("POST", "/.well-known/agent-card.json", "", "{}"); got.status != 405 {
		t.Errorf("POST: %d", got.status)
	}
	if got := b.do("OPTIONS", "/.well-known/agent-card.json", "", ""); got.status != 204 {
		t.Errorf("OPTIONS: %d", got.status)
	}

	parsed, err := a2av0.NewAgentCardParser()([]byte(card.body))
	if err != nil || len(parsed.SupportedInterfaces) == 0 {
		t.Errorf("the 0.3 parser says %v", err)
	}
	var v1 a2a.AgentCard
	if err := json.Unmarshal([]byte(card.body), &v1); err != nil || v1.SupportedInterfaces[0].URL != "https://agents.test/a2a/echo" {
		t.Errorf("the 1.0 parser says %v", err)
	}
}

func TestDefaultCard(t *testing.T) {
	b := setup(t, func(o *Options) { o.DefaultAgent = "other" })
	if got := b.do("GET", "/.well-known/agent-card.json", "", ""); got.text(t, "name") != "other" {
		t.Errorf("card %s", got.body)
	}
	b = setup(t, func(o *Options) { o.DefaultAgent = "gone" })
	if got := b.do("GET", "/.well-known/agent-card.json", "", ""); got.status != 404 {
		t.Errorf("status %d", got.status)
	}
}

func TestLinks(t *testing.T) {
	b := setup(t)
	links := b.adapter.Links(b.engine.agents[0])
	want := exchange.Link{Rel: CardRel, Type: "application/json", Href: "https://agents.test/.well-known/agent-card/echo"}
	if len(links) != 1 || links[0] != want {
		t.Errorf("links %+v", links)
	}
}
