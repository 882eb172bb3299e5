package identity

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func mail(address string) Evidence {
	e := transportEvidence()
	e.Subject = "mailto:" + address
	return e
}

func actor(iri string) Evidence {
	e := transportEvidence()
	e.Subject, e.Method, e.Assurance = iri, MethodActivityPubSignature, AssuranceAddress
	return e
}

// account is an actor whom WebFinger of an address names.
func account(iri, address string) Evidence {
	e := actor(iri)
	e.Claims = json.RawMessage(`{"actor":"` + iri + `","address":"confirmed","account":"` + address + `"}`)
	return e
}

func slack(subject string) Evidence {
	e := attestation()
	e.Subject, e.Issuer, e.Method, e.Assurance = subject, connector, slackWay, AssurancePlatform
	return e
}

func TestVouches(t *testing.T) {
	for _, c := range []struct {
		evidence Evidence
		address  string
		want     bool
	}{
		{mail("alice@a.test"), "@alice@a.test", true},
		{mail("alice@A.test"), "@alice@a.test", true},
		{mail("alice@a.test"), "@Alice@a.test", false},
		{mail("alice@a.test"), "@bob@a.test", false},
		{mail("alice@a.test"), "@alice@b.test", false},
		{mail("alice@a.test?x=@b.test"), "@alice@b.test", false},
		{mail("@alice@a.test"), "@alice@a.test", false},
		{mail("acct:alice@a.test"), "@alice@a.test", false},
		{slack("acct:alice@a.test"), "@alice@a.test", true},
		{slack("slack:T123/U456"), "@alice@a.test", false},
		{account("https://a.test/users/alice", "@alice@a.test"), "@alice@a.test", true},
		{account("https://social.a.test/users/alice", "@alice@a.test"), "@alice@a.test", true},
		{account("https://a.test/users/mallory", "@mallory@a.test"), "@alice@a.test", false},
		{actor("https://a.test/users/alice"), "@alice@a.test", false}, // its own word: nothing has confirmed the name
		{actor("https://a.test:8443/users/alice"), "@alice@a.test", false},
		{actor("https://social.a.test/users/alice"), "@alice@a.test", false},
		{actor("https://a.test@evil.test/users/alice"), "@alice@a.test", false},
		{actor("https://evil.test/@a.test"), "@alice@a.test", false},
		{actor("ftp://a.test/users/alice"), "@alice@a.test", false},
		{actor("https://a.test/users/alice"), "alice", false},
		{slack("https://a.test/users/alice"), "@alice@a.test", false},
		{Evidence{}, "@alice@a.test", false},
	} {
		if got := c.evidence.Vouches(c.address); got != c.want {
			t.Errorf("%s for %s: %v", c.evidence.Subject, c.address, got)
		}
	}
	foreign := account("https://a.test/users/alice", "@alice@a.test")
	foreign.Proof.Type = ProofSignedAttestation // someone else says that they saw the signature
	if foreign.Vouches("@alice@a.test") {
		t.Error("a peer's word about an actor vouches")
	}
}

func TestAddressGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, address string
		want             bool
	}{
		{"@*@example.org", "@alice@example.org", true},
		{"*@example.org", "@alice@example.org", true},
		{"@*@EXAMPLE.org", "@alice@example.org", true},
		{"@*@example.org", "@alice@x.example.org", false},
		{"@*@example.org", "@alice@notexample.org", false},
		{"@*@example.org", "@alice@example.org.evil.test", false},
		{"@*@*.example.org", "@alice@x.example.org", true},
		{"@*@*.example.org", "@alice@example.org", false},
		{"@*@*.example.org", "@alice@y.x.example.org", false},
		{"@*@*.*.example.org", "@alice@y.x.example.org", true},
		{"@*@**.example.org", "@alice@y.x.example.org", true},
		{"@*@**.example.org", "@alice@example.org", false},
		{"@*@**.example.org", "@alice@yexample.org", false},
		{"@*@*", "@alice@localhost", true},
		{"@*@*", "@alice@example.org", false},
		{"@*@*.*", "@alice@example.org", true},
		{"@*@**", "@alice@example.org", true},
		{"@*@**", "@alice@127.0.0.1:8080", true},
		{"@alice@example.org", "@alice@example.org", true},
		{"@alice@example.org", "@Alice@example.org", false},
		{"@a*e@example.org", "@alice@example.org", true},
		{"@a*e@example.org", "@alicE@example.org", false},
		{"@a*a@example.org", "@a@example.org", false},
		{"@*bot*@example.org", "@mybot-2@example.org", true},
		{"@*bot*@example.org", "@mybo-t@example.org", false},
		{"@*@bücher.example", "@alice@xn--bcher-kva.example", true},
		{"@*@x.test:8080", "@alice@x.test:8080", true},
		{"@*@x.test", "@alice@x.test:8080", false},
	} {
		glob, err := parseAddressGlob(c.pattern)
		if err != nil {
			t.Fatal(c.pattern, err)
		}
		a, err := ParseAddress(c.address)
		if err != nil || glob.matches(a, false) != c.want {
			t.Errorf("%s on %s: %v %v", c.pattern, c.address, !c.want, err)
		}
	}
	for _, pattern := range []string{
		"", "*", "@", "@*", "@*@", "@@a.test", "alice", "@*@ex*.org", "@*@a.*.org", "@*@*a.org", "@*@a.*", "@*@**.**", "@*@*.**.a.test", "@*@*..a.test", "@*@a@b.test",
		"@*@a_b.test", "@" + strings.Repeat("a", 400) + "@a.test",
	} {
		if glob, err := parseAddressGlob(pattern); err == nil {
			t.Errorf("%q: %+v", pattern, glob)
		}
	}
}

// A glob made from an address by stars in the local part matches it; without stars it matches nothing else.
func TestGlobProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		local := rapid.StringMatching(`[a-z.]{1,12}`).Draw(t, "local")
		from := rapid.IntRange(0, len(local)).Draw(t, "from")
		to := rapid.IntRange(from, len(local)).Draw(t, "to")
		if !matchStars(local[:from]+"*"+local[to:], local) || !matchStars("*"+local[from:to]+"*", local) {
			t.Fatal(local, from, to)
		}
		other := rapid.StringMatching(`[a-z.]{1,12}`).Draw(t, "other")
		if matchStars(local, other) != (local == other) {
			t.Fatal(local, other)
		}
	})
}

func TestDecide(t *testing.T) {
	alice, eve := mail("alice@a.test"), mail("eve@a.test")
	failed := actor("https://a.test/u/1")
	failed.Claims = json.RawMessage(`{"actor":"https://a.test/u/1","address":"failed"}`)
	team := Rule{Effect: EffectAllow, Issuer: "https://Connector.test", Subject: "slack:T123/*"}
	denied := func(rule int) Decision { return Decision{Rule: rule, Code: CodeAccessDenied} }
	allowed := func(rule int) Decision { return Decision{Allowed: true, Rule: rule} }
	none, unverified := Decision{Rule: -1, Code: CodeAccessNoRule}, Decision{Rule: -1, Code: CodeAccessUnverified}
	for _, c := range []struct {
		name     string
		policy   AccessPolicy
		purpose  string
		address  string
		evidence []Evidence
		want     Decision
	}{
		{"public", AccessPolicy{Access: AccessPublic}, "message", "@x@a.test", nil, allowed(-1)},
		{"public tool", AccessPolicy{Access: AccessPublic}, "tool:send", "@alice@a.test", []Evidence{alice}, none},
		{"public skill", AccessPolicy{Access: AccessPublic}, "skill:x", "@alice@a.test", []Evidence{alice}, none},
		{"verified with", AccessPolicy{Access: AccessVerified}, "message", "@alice@a.test", []Evidence{alice}, allowed(-1)},
		{"verified without", AccessPolicy{Access: AccessVerified}, "message", "@alice@a.test", nil, unverified},
		{"rules, none left", AccessPolicy{Access: AccessRules}, "message", "@alice@a.test", []Evidence{alice}, none},
		{"nothing written", AccessPolicy{}, "message", "@alice@a.test", []Evidence{alice}, none},
		{"team", rules(team), "message", "@u456@connector.test", []Evidence{alice, slack("slack:T123/U1")}, allowed(0)},
		{"longer team", rules(team), "message", "@u456@connector.test", []Evidence{slack("slack:T1234/U1")}, none},
		{"other issuer", rules(team), "message", "", []Evidence{mail("slack:T123/U1")}, none},
		{"exact subject", rules(Rule{Effect: EffectAllow, Subject: "mailto:alice@a.test"}), "message", "", []Evidence{alice}, allowed(0)},
		{"subject is longer", rules(Rule{Effect: EffectAllow, Subject: "mailto:alice@a.test"}), "message", "", []Evidence{mail("alice@a.test.evil")}, none},
		{"method", rules(Rule{Effect: EffectAllow, Method: MethodEmailDKIM}), "message", "", []Evidence{alice}, none},
		{"assurance", rules(Rule{Effect: EffectAllow, Assurance: []string{AssuranceAgent, AssuranceDomain}}), "message", "", []Evidence{alice}, allowed(0)},
		{"one piece matches all", rules(Rule{Effect: EffectAllow, Method: slackWay, Assurance: []string{AssuranceDomain}}), "message", "", []Evidence{alice, slack("slack:T123/U1")}, none},
		{"glob proven", rules(Rule{Effect: EffectAllow, Address: "@*@a.test"}), "message", "@alice@a.test", []Evidence{alice}, allowed(0)},
		{"glob by actor", rules(Rule{Effect: EffectAllow, Address: "@*@a.test"}), "message", "@alice@a.test", []Evidence{actor("https://a.test/u/1")}, allowed(0)},
		{"address by an actor's own word", rules(Rule{Effect: EffectAllow, Address: "@alice@a.test"}), "message", "@alice@a.test", []Evidence{actor("https://a.test/u/1")}, none},
		{"address after WebFinger said otherwise", rules(Rule{Effect: EffectAllow, Address: "@alice@a.test"}), "message", "@alice@a.test", []Evidence{failed}, none},
		{"address that WebFinger confirmed", rules(Rule{Effect: EffectAllow, Address: "@alice@a.test"}), "message", "@alice@a.test", []Evidence{account("https://a.test/u/1", "@alice@a.test")}, allowed(0)},
		{"address of another domain that WebFinger confirmed", rules(Rule{Effect: EffectAllow, Address: "@alice@a.test"}), "message", "@alice@a.test", []Evidence{account("https://social.test/u/1", "@alice@a.test")}, allowed(0)},
		{"part of a name by an actor's own word", rules(Rule{Effect: EffectAllow, Address: "@al*@a.test"}), "message", "@alice@a.test", []Evidence{actor("https://a.test/u/1")}, none},
		{"glob stated only", rules(Rule{Effect: EffectAllow, Address: "@*@a.test"}), "message", "@alice@a.test", nil, none},
		{"glob with other evidence", rules(Rule{Effect: EffectAllow, Address: "@*@a.test"}), "message", "@alice@a.test", []Evidence{eve, slack("slack:T123/U1")}, none},
		{"glob and method of two pieces", rules(Rule{Effect: EffectAllow, Address: "@*@a.test", Method: slackWay}), "message", "@alice@a.test", []Evidence{alice, slack("slack:T123/U1")}, none},
		{"deny stated", AccessPolicy{AccessPublic, []Rule{{Effect: EffectDeny, Address: "@*@**.evil.test"}}}, "message", "@x@a.b.evil.test", nil, denied(0)},
		{"deny other case", AccessPolicy{AccessPublic, []Rule{{Effect: EffectDeny, Address: "@eve@a.test"}}}, "message", "@EVE@a.test", nil, denied(0)},
		{"deny proven under another address", AccessPolicy{AccessPublic, []Rule{{Effect: EffectDeny, Address: "@eve@a.test"}}}, "message", "@token@x.test", []Evidence{eve}, denied(0)},
		{"deny somebody else", AccessPolicy{AccessPublic, []Rule{{Effect: EffectDeny, Address: "@eve@a.test"}}}, "message", "@alice@a.test", []Evidence{alice}, allowed(-1)},
		{"deny by evidence", AccessPolicy{AccessPublic, []Rule{{Effect: EffectDeny, Method: slackWay}}}, "message", "@alice@a.test", []Evidence{slack("slack:T1/U1")}, denied(0)},
		{"deny by evidence, none", AccessPolicy{AccessPublic, []Rule{{Effect: EffectDeny, Method: slackWay}}}, "message", "@alice@a.test", nil, allowed(-1)},
		{"first match", rules(Rule{Effect: EffectDeny, Address: "@eve@a.test"}, Rule{Effect: EffectAllow, Address: "@*@a.test"}), "message", "@eve@a.test", []Evidence{eve}, denied(0)},
		{"second match", rules(Rule{Effect: EffectDeny, Address: "@eve@a.test"}, Rule{Effect: EffectAllow, Address: "@*@a.test"}), "message", "@alice@a.test", []Evidence{alice}, allowed(1)},
		{"order counts", rules(Rule{Effect: EffectAllow, Address: "@*@a.test"}, Rule{Effect: EffectDeny, Address: "@eve@a.test"}), "message", "@eve@a.test", []Evidence{eve}, allowed(0)},
		{"message rule opens no tool", rules(Rule{Effect: EffectAllow}), "tool:send", "@alice@a.test", []Evidence{alice}, none},
		{"tool rule opens no message", rules(Rule{Effect: EffectAllow, Purposes: []string{"tool:send"}}), "message", "@alice@a.test", []Evidence{alice}, none},
		{"tool", AccessPolicy{AccessPublic, []Rule{{Effect: EffectAllow, Purposes: []string{"tool:send"}, Address: "@*@a.test"}}}, "tool:send", "@alice@a.test", []Evidence{alice}, allowed(0)},
		{"other tool", AccessPolicy{AccessPublic, []Rule{{Effect: EffectAllow, Purposes: []string{"tool:send"}}}}, "tool:sendmail", "@alice@a.test", []Evidence{alice}, none},
		{"anyone", rules(Rule{Effect: EffectAllow}), "message", "", nil, allowed(0)},
		{"broken allow", rules(Rule{Effect: EffectAllow, Subject: "slack:T1*"}), "message", "", []Evidence{slack("slack:T123/U1")}, none},
		{"broken deny", AccessPolicy{AccessPublic, []Rule{{Effect: EffectDeny, Address: "x"}}}, "message", "@alice@a.test", []Evidence{alice}, denied(0)},
		{"no effect", AccessPolicy{AccessPublic, []Rule{{}}}, "message", "@alice@a.test", []Evidence{alice}, denied(0)},
	} {
		got := c.policy.Decide(c.purpose, Stated(c.address), c.evidence)
		if got.Allowed == (got.Reason != "") {
			t.Errorf("%s: reason %q", c.name, got.Reason)
		}
		got.Reason = ""
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Error(c.name, diff)
		}
	}
}

func rules(list ...Rule) AccessPolicy { return AccessPolicy{Access: AccessRules, Rules: list} }

// Evidence only ever opens more, as long as no rule denies, and an unproven address opens nothing.
func TestDecideProperties(t *testing.T) {
	rule := rapid.Custom(func(t *rapid.T) Rule {
		return Rule{
			Effect: EffectAllow, Method: rapid.SampledFrom([]string{"", slackWay, MethodEmailDMARC}).Draw(t, "method"),
			Subject: rapid.SampledFrom([]string{"", "slack:T123/*", "mailto:alice@a.test"}).Draw(t, "subject"),
			Address: rapid.SampledFrom([]string{"@*@a.test", "@alice@a.test", "@*@**"}).Draw(t, "address"),
		}
	})
	evidence := rapid.SampledFrom([]Evidence{mail("alice@a.test"), mail("eve@a.test"), slack("slack:T123/U1"), actor("https://a.test/u/1")})
	rapid.Check(t, func(t *rapid.T) {
		policy := rules(rapid.SliceOfN(rule, 0, 3).Draw(t, "rules")...)
		if err := policy.Validate(); err != nil {
			t.Fatal(err)
		}
		address := rapid.SampledFrom([]string{"@alice@a.test", "@bob@b.test", ""}).Draw(t, "address")
		some := rapid.SliceOfN(evidence, 0, 3).Draw(t, "evidence")
		with := policy.Decide(PurposeMessage, Stated(address), append(slices.Clip(some), evidence.Draw(t, "more")))
		if policy.Decide(PurposeMessage, Stated(address), some).Allowed && !with.Allowed {
			t.Fatal("more evidence closed the agent")
		}
		if policy.Decide(PurposeMessage, Stated(address), nil).Allowed {
			t.Fatal("a stated address opened the agent")
		}
	})
}

func TestPolicyValidate(t *testing.T) {
	good := rules(
		Rule{Effect: EffectAllow, Issuer: "https://a.example/", Subject: "slack:T123/*", Assurance: []string{"x"}, Address: "@*@a.test"},
		Rule{Effect: EffectDeny, Purposes: []string{"message", "tool:send", "skill:x"}},
	)
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, policy := range map[string]AccessPolicy{
		"nothing written": {}, "unknown access": {Access: "open"}, "many": {Access: AccessRules, Rules: make([]Rule, maxRules+1)},
		"effect": rules(Rule{}), "issuer": rules(Rule{Effect: EffectAllow, Issuer: "a b"}), "assurance": rules(Rule{Effect: EffectAllow, Assurance: []string{""}}),
		"subject without separator": rules(Rule{Effect: EffectAllow, Subject: "slack:T1*"}), "star inside": rules(Rule{Effect: EffectAllow, Subject: "slack:*/U1"}),
		"star alone": rules(Rule{Effect: EffectAllow, Subject: "*"}), "address": rules(Rule{Effect: EffectAllow, Address: "alice"}),
		"purpose": rules(Rule{Effect: EffectAllow, Purposes: []string{"talk"}}), "tool without name": rules(Rule{Effect: EffectAllow, Purposes: []string{"tool:"}}),
		"all tools": rules(Rule{Effect: EffectAllow, Purposes: []string{"tool:*"}}), "tools of a server": rules(Rule{Effect: EffectAllow, Purposes: []string{"tool:notes/*"}}),
		"all skills": rules(Rule{Effect: EffectDeny, Purposes: []string{"skill:*"}}), "all purposes": rules(Rule{Effect: EffectAllow, Purposes: []string{"*"}}),
		"purposes": rules(Rule{Effect: EffectAllow, Purposes: make([]string, maxPurposes+1)}),
	} {
		if policy.Validate() == nil {
			t.Error(name)
		}
	}
}

func TestPublished(t *testing.T) {
	team := Rule{Effect: EffectAllow, Issuer: "https://Connector.test/", Method: slackWay, Subject: "slack:T123/*", Assurance: []string{AssurancePlatform}}
	tool := Rule{Effect: EffectAllow, Purposes: []string{"tool:send", "skill:x"}, Method: MethodEmailDMARC, Address: "@boss@a.test"}
	for want, policy := range map[string]AccessPolicy{
		`{"require":[],"otherwise":"forbidden"}`:                                                     {Access: AccessPublic},
		`{"require":[{"purpose":"message","methods":[],"assurance":[]}],"otherwise":"unauthorized"}`: {Access: AccessVerified},
		`{"require":[{"purpose":"message","methods":[],"assurance":[]}],"otherwise":"forbidden"}`:    {Access: AccessRules},
		`{"require":[{"purpose":"message","methods":["` + slackWay + `"],"assurance":["platform"],"issuers":["connector.test"]}],"otherwise":"forbidden"}`: rules(
			Rule{Effect: EffectDeny, Address: "@eve@a.test"}, team),
		`{"require":[{"purpose":"message","methods":["` + slackWay + `","m2"],"assurance":[]}],"otherwise":"forbidden"}`: rules(team, Rule{Effect: EffectAllow, Method: "m2"}),
		`{"require":[{"purpose":"tool:send","methods":["` + MethodEmailDMARC + `"],"assurance":[]},{"purpose":"skill:x","methods":["` + MethodEmailDMARC + `"],"assurance":[]}],"otherwise":"forbidden"}`: {
			Access: AccessPublic, Rules: []Rule{tool}},
	} {
		body, err := json.Marshal(policy.Published())
		if err != nil || string(body) != want {
			t.Errorf("%v\n got %s\nwant %s", err, body, want)
		}
	}
	open := rules(team, Rule{Effect: EffectAllow})
	if got := open.Published(); len(got.Require) != 0 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkDecide(b *testing.B) {
	var list []Rule
	for range 50 {
		list = append(list, Rule{Effect: EffectAllow, Issuer: connector, Subject: "slack:T9/*", Address: "@*@a.test"})
	}
	policy, evidence := rules(list...), []Evidence{mail("alice@a.test"), slack("slack:T123/U1")}
	for b.Loop() {
		policy.Decide(PurposeMessage, Stated("@alice@a.test"), evidence)
	}
}
