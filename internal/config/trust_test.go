package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const trustDocument = minimal + `
[payments]
facilitator_url = "https://facilitator.example/"
[[trust]]
issuer = "https://Chat.example/"
methods = ["urn:mentionable:auth:slack-workspace-member:v0.1"]
assurance = ["platform"]
subject_prefixes = ["slack:T123/"]
allow_delegated = true
expires = 2030-06-01
[[peers]]
domain = "Agents.example"
token = "hunter2"
[[logins]]
name = "company"
issuer = "https://login.example"
client_id = "inbox"
client_secret = "hunter2"
[[agents]]
name = "a"
kind = "echo"
access = "rules"
max_hops = 2
history = "person"
[[agents.rules]]
effect = "deny"
address = "@spam@example.org"
[[agents.rules]]
effect = "allow"
purposes = ["message", "tool:search"]
issuer = "https://CHAT.example"
subject = "slack:T123/*"
assurance = ["platform"]
`

func TestTrustKeys(t *testing.T) {
	got := load(t, trustDocument)
	want := []Trust{{
		Issuer: "chat.example", Methods: []string{"urn:mentionable:auth:slack-workspace-member:v0.1"}, Assurance: []string{"platform"},
		SubjectPrefixes: []string{"slack:T123/"}, AllowDelegated: true, Expires: time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC),
	}}
	if diff := cmp.Diff(want, got.Trust); diff != "" {
		t.Error(diff)
	}
	if got.Payments.FacilitatorURL != "https://facilitator.example" || got.Peers[0].Domain != "agents.example" || got.Peers[0].Token.Reveal() != "hunter2" {
		t.Errorf("%+v %+v", got.Payments, got.Peers)
	}
	if diff := cmp.Diff([]string{"openid"}, got.Logins[0].Scopes); diff != "" {
		t.Error(diff)
	}
	agent := got.Agents[0]
	if agent.History.Scope != "person" || agent.History.Window != 20 || agent.MaxHops != 2 || agent.Access != "rules" {
		t.Errorf("%+v", agent)
	}
	rules := []Rule{
		{Effect: "deny", Address: "@spam@example.org"},
		{Effect: "allow", Purposes: []string{"message", "tool:search"}, Issuer: "chat.example", Subject: "slack:T123/*", Assurance: []string{"platform"}},
	}
	if diff := cmp.Diff(rules, agent.Rules); diff != "" {
		t.Error(diff)
	}
	if text := fmt.Sprintf("%+v %#v %v", *got, *got, got.Logins); strings.Contains(text, "hunter2") {
		t.Errorf("a secret shows in %s", text)
	}
}

func TestTrustVariables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{
		"INBOX_TRUST_0_ISSUER=chat.example", "INBOX_TRUST_0_METHODS=m1,m2", "INBOX_TRUST_0_ASSURANCE=platform",
		"INBOX_TRUST_0_SUBJECT_PREFIXES=slack:T1/", "INBOX_TRUST_0_EXPIRES=2030-06-01T10:00:00+02:00",
		"INBOX_PEERS_0_DOMAIN=b.example", "INBOX_PEERS_0_TOKEN_FILE=" + file, "INBOX_PAYMENTS_FACILITATOR_URL=http://127.0.0.1:9",
		"INBOX_AGENTS_0_NAME=a", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_ACCESS=rules", "INBOX_AGENTS_0_HISTORY=person",
	}
	for i := range 12 { // more than nine, so that the tenth sorts after the second
		environ = append(environ, fmt.Sprintf("INBOX_AGENTS_0_RULES_%d_EFFECT=deny", i), fmt.Sprintf("INBOX_AGENTS_0_RULES_%d_METHOD=m%d", i, i))
	}
	got := load(t, minimal, environ...)
	if got.Peers[0].Token.Reveal() != "token" || !got.Trust[0].Expires.Equal(time.Date(2030, 6, 1, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v %+v", got.Peers, got.Trust)
	}
	if agent := got.Agents[0]; len(agent.Rules) != 12 || agent.Rules[11].Method != "m11" || agent.History.Scope != "person" {
		t.Errorf("%+v", agent)
	}
}

func TestAccessIsWrittenOut(t *testing.T) {
	got := load(t, minimal+"[[agents]]\nname = \"a\"\nkind = \"echo\"\naccess = \"rules\"\n")
	if got.Agents[0].Access != "rules" || len(got.Agents[0].Rules) != 0 {
		t.Errorf("an agent without rules: %+v", got.Agents[0])
	}
	if got := load(t, minimal); got.Agents[0].Access != "public" || got.Agents[0].MaxHops != 4 || got.Agents[0].History.Scope != "thread" {
		t.Errorf("the agent that nobody wrote: %+v", got.Agents[0])
	}
}

func TestTrustProblems(t *testing.T) {
	const agent = minimal + "[[agents]]\nname = \"a\"\nkind = \"echo\"\n"
	const ruled = agent + "access = \"rules\"\n[[agents.rules]]\n"
	const peer = minimal + "[[peers]]\ndomain = \"b.example\"\n"
	const login = minimal + "[[logins]]\nname = \"l\"\nclient_id = \"x\"\n"
	trust := func(issuer, methods, prefixes string) string {
		return minimal + "[[trust]]\nissuer = \"" + issuer + "\"\nmethods = " + methods + "\nassurance = [\"platform\"]\nsubject_prefixes = " + prefixes + "\n"
	}
	for name, test := range map[string]struct{ document, want string }{
		"issuer": {trust("https://chat.example/x", `["m"]`, `["slack:"]`),
			`inbox.toml:3: trust[0].issuer: "https://chat.example/x" is not an issuer; write a host such as "chat.example", its https:// origin, or "did:web:chat.example"`},
		"issuer over http": {trust("http://chat.example", `["m"]`, `["slack:"]`),
			`inbox.toml:3: trust[0].issuer: "http://chat.example" is not an issuer; write a host such as "chat.example", its https:// origin, or "did:web:chat.example"`},
		"issuer with a port": {trust("chat.example:8443", `["m"]`, `["slack:"]`),
			`inbox.toml:3: trust[0].issuer: "chat.example:8443" has a port; write the host alone, or federation.allow_private = true for a closed network`},
		"no methods": {trust("chat.example", `[]`, `["slack:"]`),
			`inbox.toml:4: trust[0].methods: is empty, so no evidence of this issuer is accepted; write methods = ["urn:mentionable:auth:slack-workspace-member:v0.1"] or another`},
		"no prefixes": {trust("did:web:chat.example", `["m"]`, `[]`),
			`inbox.toml:6: trust[0].subject_prefixes: is empty, so no evidence of this issuer is accepted; write subject_prefixes = ["slack:T123/"] or another`},
		"method as a pattern": {trust("chat.example", `["urn:*"]`, `["slack:"]`),
			`inbox.toml:4: trust[0].methods[0]: "urn:*" is not a name; write the name in full, without * and blanks`},
		"prefix without a separator": {trust("chat.example", `["m"]`, `["slack:", "slack:T123"]`),
			`inbox.toml:6: trust[0].subject_prefixes[1]: "slack:T123" does not end at a separator, so it would cover longer names, too; end it with one of / : # ? = @`},
		"expires": {trust("chat.example", `["m"]`, `["slack:"]`) + "expires = \"soon\"\n",
			`inbox.toml:7: trust[0].expires: wrong kind of value; write a date such as 2030-12-31 or a time such as 2030-12-31T12:00:00Z`},
		"peer without a token": {peer, `inbox.toml:2: peers[0].token: is not a bearer token; write the token that the peer's operator minted for you, or its file as token_file`},
		"token that would break a header": {peer + "token = \"a\\nb\"\n",
			`inbox.toml:4: peers[0].token: is not a bearer token; write the token that the peer's operator minted for you, or its file as token_file`},
		"peer twice": {peer + "token = \"a\"\n[[peers]]\ndomain = \"B.example\"\ntoken = \"b\"\n",
			`inbox.toml:6: peers[1].domain: "b.example" is a duplicate (peers[0]); keep one of the two`},
		"token and file": {peer + "token = \"a\"\ntoken_file = \"x\"\n",
			`inbox.toml:5: peers[0].token_file: the secret is set twice; write token or token_file, not both`},
		"login over http": {login + "issuer = \"http://login.example\"\n",
			`inbox.toml:5: logins[0].issuer: "http://login.example" is not the address of a login service; write its issuer URL such as "https://login.example.com"; http only with federation.allow_private`},
		"login without openid": {login + "issuer = \"https://login.example\"\nscopes = [\"email\"]\n",
			`inbox.toml:6: logins[0].scopes: lack "openid", without which the service does not say who logged in; write scopes = ["openid"] and more if you need them`},
		"facilitator": {minimal + "[payments]\nfacilitator_url = \"http://facilitator.example\"\n",
			`inbox.toml:3: payments.facilitator_url: "http://facilitator.example" is not the address of a facilitator; write one such as "https://facilitator.example", without query; plain http on this machine only`},
		"access": {agent + "access = \"rule\"\n", `inbox.toml:5: agents[0].access: "rule" is unknown; did you mean "rules"?`},
		"rules without access": {agent + "[[agents.rules]]\neffect = \"allow\"\n",
			`inbox.toml:2: agents[0].access: is not written, but there are rules: the agent would be open to anyone once the last of them is removed; write access = "public" to leave it open to everyone, as it was without rules, or access = "rules" to let in only whom they allow`},
		"effect":       {ruled + "effect = \"permit\"\n", `inbox.toml:7: agents[0].rules[0].effect: "permit" is unknown; write allow, deny`},
		"all tools":    {ruled + "effect = \"allow\"\npurposes = [\"tool:*\"]\n", `inbox.toml:8: agents[0].rules[0].purposes[0]: "tool:*" has a star, but tools and skills are named whole; write each tool or skill that the rule is about; inbox doctor shows the names of the tools`},
		"tools of one": {ruled + "effect = \"deny\"\npurposes = [\"message\", \"tool:notes/*\"]\n", `inbox.toml:8: agents[0].rules[0].purposes[1]: "tool:notes/*" has a star, but tools and skills are named whole; write each tool or skill that the rule is about; inbox doctor shows the names of the tools`},
		"purpose":      {ruled + "effect = \"deny\"\npurposes = [\"tool:\"]\n", `inbox.toml:8: agents[0].rules[0].purposes[0]: "tool:" is unknown; write "message", "tool:<name>" or "skill:<id>"`},
		"subject": {ruled + "effect = \"deny\"\nsubject = \"slack:T123*\"\n",
			`inbox.toml:8: agents[0].rules[0].subject: "slack:T123*" is neither a subject nor a beginning that ends at a separator; write the whole subject, or a beginning such as "slack:T123/*"; leave it out to match everybody`},
		"method":    {ruled + "effect = \"deny\"\nmethod = \"*\"\n", `inbox.toml:8: agents[0].rules[0].method: "*" is not a method; write its name in full, without * and blanks; leave it out to match all`},
		"address":   {ruled + "effect = \"deny\"\naddress = \"*.example\"\n", `inbox.toml:8: agents[0].rules[0].address: "*.example" is not a pattern over addresses; write one such as "@alice@example.org" or "@*@example.org"`},
		"hops":      {agent + "max_hops = 33\n", `inbox.toml:5: agents[0].max_hops: 33 is out of range; write 1 to 32`},
		"ack late":  {agent + "ack_after = \"25h\"\n", `inbox.toml:5: agents[0].ack_after: "25h" is out of range; write "0s" to "24h"`},
		"ack empty": {agent + "ack_text = \" \"\n", `inbox.toml:5: agents[0].ack_text: is empty or longer than 1000 bytes; write a sentence, or remove the line`},
		"history":   {agent + "history = \"persons\"\n", `inbox.toml:5: agents[0].history.scope: "persons" is unknown; did you mean "person"?`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(write(t, test.document), nil)
			if err == nil {
				t.Fatal("it was taken")
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestExamplesInTheGuideLoad(t *testing.T) {
	guide, err := os.ReadFile("../../docs/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(guide), "```toml\n")[1:]
	if len(blocks) < 5 {
		t.Fatalf("the guide has %d examples", len(blocks))
	}
	for _, block := range blocks {
		example, _, _ := strings.Cut(block, "```")
		if _, err := Load(write(t, example), nil); err != nil {
			t.Errorf("%v in\n%s", err, example)
		}
	}
}
