package moderation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// changes is a Source in memory.
type changes struct {
	rows []exchange.ListChange
	fail error
}

func (c *changes) ListChanges(_ context.Context, version int64, id string, limit int) ([]exchange.ListChange, error) {
	var found []exchange.ListChange
	for _, row := range c.rows {
		if (row.Version > version || row.Version == version && row.Entry.ID > id) && len(found) < limit {
			found = append(found, row)
		}
	}
	return found, c.fail
}

func (c *changes) put(t *testing.T, list, text, effect string) {
	t.Helper()
	kind, target, err := ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	n := len(c.rows) + 1
	c.rows = append(c.rows, exchange.ListChange{Version: int64(n), Entry: exchange.ListEntry{
		ID: fmt.Sprintf("%06d", n), List: list, Kind: kind, Target: target, Effect: effect,
	}})
}

// lists reads "block:target", "hold:target" and "allow:target".
func lists(t *testing.T, onlyAllowed bool, entries ...string) *Lists {
	t.Helper()
	source := &changes{}
	for _, entry := range entries {
		what, target, _ := strings.Cut(entry, ":")
		switch what {
		case "block":
			source.put(t, exchange.ListBlock, target, exchange.EffectRefuse)
		case "hold":
			source.put(t, exchange.ListBlock, target, exchange.EffectHold)
		default:
			source.put(t, exchange.ListAllow, target, "")
		}
	}
	l := New(Options{Source: source, Domain: "inbox.example", Hosts: map[string]bool{"web.inbox.example": true}, OnlyAllowed: onlyAllowed})
	if _, err := l.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]string{
		"example.com": "host example.com", "EXAMPLE.com.": "host example.com", "bücher.example": "host xn--bcher-kva.example",
		"*.Bücher.example": "host *.xn--bcher-kva.example", "example.com:8443": "host example.com:8443", "127.0.0.1:80": "host 127.0.0.1:80",
		"https://example.com/": "host example.com", "https://example.com": "host example.com",
		"@Alice@Example.com": "address @alice@example.com", "alice@bücher.example": "address @alice@xn--bcher-kva.example",
		"acct:alice@example.com": "address @alice@example.com", "mailto:alice@example.com": "address @alice@example.com",
		"https://Example.com/users/Alice": "actor https://example.com/users/Alice", "token:0190": "actor token:0190",
		"inbox.example mailto:a@b.example": "principal inbox.example mailto:a@b.example",
		"unverified @a@b.example":          "principal unverified @a@b.example",
		"https://login.example 4711":       "principal https://login.example 4711",
	} {
		kind, target, err := ParseTarget(text)
		if got := kind + " " + target; err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "*", "*.", "a.*.example", "exa_mple.com", "-a.example", "a..example", "*.127.0.0.1", "*.example.com:80",
		"@", "@a@", "a@b@c d\x00", "https://", "https://u:p@example.com/x", "ex***le.com", "http://foo bar", "unverified a b", strings.Repeat("a", MaxTargetBytes+1)} {
		if kind, target, err := ParseTarget(text); err == nil {
			t.Errorf("%q was read as %s %s", text, kind, target)
		}
	}
}

// TestEntriesMatchInEveryForm: however an operator or a sender writes the same actor, principal or host, they are compared in one form.
func TestEntriesMatchInEveryForm(t *testing.T) {
	for _, entry := range []string{
		"https://evil.example/users/eve", "HTTPS://Evil.example/users/eve", "http://evil.example/users/eve/", "https://evil.example:443/users/eve", "evil.example:443",
		"http://evil.example/", "inbox.example https://Evil.example/users/eve/", "INBOX.example HTTPS://evil.example/users/eve", "https://inbox.example https://evil.example:443/users/eve",
	} {
		l := lists(t, false, "block:"+entry)
		for _, subject := range []string{"https://evil.example/users/eve", "https://EVIL.example/users/eve", "https://evil.example:443/users/eve/"} {
			if got := l.Sender(actor("@eve@evil.example", subject)); !got.Refused() {
				t.Errorf("the entry %s does not match %s", entry, subject)
			}
		}
		if got := l.Sender(actor("@bob@fine.example", "https://fine.example/users/eve")); got.Refused() {
			t.Errorf("the entry %s matches another server", entry)
		}
	}
	if l := lists(t, false, "block:INBOX.example MAILTO:Carol@Fine.example"); !l.Sender(mailer("carol@fine.example")).Refused() {
		t.Error("a principal in other capitals does not match")
	}
}

// TestHosts: whole labels are compared, never substrings, and the narrowest entry decides.
func TestHosts(t *testing.T) {
	l := lists(t, false, "block:evil.example", "block:*.bad.example", "allow:good.bad.example", "block:*.worse.good.bad.example",
		"block:ports.example:8443", "block:xn--bcher-kva.example", "hold:quiet.example", "allow:tie.example", "block:tie.example", "block:127.0.0.1:4433")
	for host, refused := range map[string]bool{
		"evil.example": true, "EVIL.example.": true, "evil.example:8443": true, "sub.evil.example": false, "notevil.example": false,
		"evil.example.org": false, "bad.example": true, "a.b.bad.example": true, "notbad.example": false, "good.bad.example": false,
		"x.good.bad.example": true, "y.worse.good.bad.example": true, "ports.example": false, "ports.example:8443": true, "ports.example:1": false,
		"Bücher.example": true, "xn--bcher-kva.example": true, "bucher.example": false, "quiet.example": false, "tie.example": true,
		"inbox.example": false, "127.0.0.1:4433": true, "127.0.0.1:4434": false, "not a host": true, "": true,
	} {
		if got := l.Host(host).Refused(); got != refused {
			t.Errorf("%s: refused %v, want %v", host, got, refused)
		}
	}
}

func actor(address, iri string) normalized.Sender {
	return normalized.Sender{Address: identity.Stated(address), Identities: []identity.Evidence{
		identity.Transport(identity.TransportProof{Domain: "inbox.example", Subject: iri, Method: identity.MethodActivityPubSignature, Recipient: "@echo@inbox.example"}),
	}}
}

func mailer(address string) normalized.Sender {
	return normalized.Sender{Address: identity.Stated("@" + address), Identities: []identity.Evidence{
		identity.Transport(identity.TransportProof{Domain: "inbox.example", Subject: "mailto:" + address, Method: identity.MethodEmailDMARC, Recipient: "@echo@inbox.example"}),
	}}
}

func peerAgent() normalized.Sender {
	return normalized.Sender{Address: identity.Stated("@friend@inbox.example"), Identities: []identity.Evidence{{
		Subject: "token:1", Issuer: "inbox.example", Proof: identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: "inbox.example"},
	}}}
}

func TestSenders(t *testing.T) {
	open := lists(t, false, "block:evil.example", "block:@bob@fine.example", "block:https://fine.example/users/eve", "hold:quiet.example",
		"allow:@friend@evil.example", "block:token:1", "block:inbox.example mailto:carol@fine.example")
	only := lists(t, true, "allow:fine.example", "block:@bob@fine.example", "allow:@guest@elsewhere.example", "hold:fine.example:99")
	unproven := func(address string) normalized.Sender { return normalized.Sender{Address: identity.Stated(address)} }
	delegated := peerAgent()
	delegated.Identities[0].Subject = "token:2"
	delegated.Identities = append(delegated.Identities, identity.Evidence{Subject: "slack:T1/U1", Issuer: "evil.example"})
	brought := func(token, subject string) normalized.Sender {
		sender := peerAgent()
		sender.Identities[0].Subject, sender.Address, sender.CarriedBy = token, identity.Stated("@connector.1@inbox.example"), sender.Address
		sender.Identities = append(sender.Identities, identity.Evidence{
			Subject: subject, Issuer: "fine.example", Proof: identity.Proof{Type: identity.ProofSignedAttestation},
		})
		return sender
	}
	carriers := lists(t, false, "block:fine.example slack:T1/U1", "block:token:1", "block:@bridge@inbox.example")
	byAddress := brought("token:2", "slack:T1/U2")
	byAddress.CarriedBy = identity.Stated("@bridge@inbox.example")
	for name, test := range map[string]struct {
		lists  *Lists
		sender normalized.Sender
		want   string
	}{
		"nobody":                          {open, actor("@alice@fine.example", "https://fine.example/users/alice"), ""},
		"host of an actor":                {open, actor("@x@evil.example", "https://evil.example/users/x"), "refuse block:host"},
		"host behind a handle":            {open, actor("@x@vanity.example", "https://evil.example/users/x"), "refuse block:host"},
		"handle on a blocked host":        {open, actor("@x@evil.example", "https://other.example/users/x"), "refuse block:host"},
		"host of a mail":                  {open, mailer("x@evil.example"), "refuse block:host"},
		"stated host":                     {open, unproven("@x@evil.example"), "refuse block:host"},
		"below":                           {open, mailer("x@sub.evil.example"), ""},
		"address on the fediverse":        {open, actor("@Bob@fine.example", "https://fine.example/users/bob"), "refuse block:address"},
		"address by mail":                 {open, mailer("BOB@fine.example"), "refuse block:address"},
		"stated address":                  {open, unproven("@bob@fine.example"), "refuse block:address"},
		"actor":                           {open, actor("@eve@fine.example", "https://fine.example/users/eve"), "refuse block:actor"},
		"principal":                       {open, mailer("carol@fine.example"), "refuse block:principal"},
		"peer by token":                   {open, peerAgent(), "refuse block:actor"},
		"a person of a connector":         {carriers, brought("token:2", "slack:T1/U1"), "refuse block:principal"},
		"another one":                     {carriers, brought("token:2", "slack:T1/U2"), ""},
		"the connector":                   {carriers, brought("token:1", "slack:T1/U2"), "refuse block:actor"},
		"the connector by address":        {carriers, byAddress, "refuse block:address"},
		"who vouches":                     {open, delegated, "refuse block:host"},
		"quiet":                           {open, mailer("x@quiet.example"), "hold block:host"},
		"exception":                       {open, mailer("friend@evil.example"), ""},
		"exception must be proven":        {open, unproven("@friend@evil.example"), "refuse block:host"},
		"exception of another actor":      {open, actor("@friend@evil.example", "https://liar.example/users/x"), "refuse block:host"},
		"listed":                          {only, actor("@alice@fine.example", "https://fine.example/users/alice"), ""},
		"listed mail":                     {only, mailer("alice@fine.example"), ""},
		"not listed":                      {only, mailer("alice@other.example"), "refuse allowlist:not_listed"},
		"block wins on the allow list":    {only, mailer("bob@fine.example"), "refuse block:address"},
		"listed by address":               {only, mailer("guest@elsewhere.example"), ""},
		"another one of the host":         {only, mailer("other@elsewhere.example"), "refuse allowlist:not_listed"},
		"listed and unproven":             {only, unproven("@alice@fine.example"), "hold allowlist:unproven"},
		"not listed and unproven":         {only, unproven("@alice@other.example"), "refuse allowlist:not_listed"},
		"handle claims a listed host":     {only, actor("@alice@fine.example", "https://liar.example/users/x"), "refuse allowlist:not_listed"},
		"our token on the allow list":     {only, peerAgent(), ""},
		"handle elsewhere, listed server": {only, actor("@alice@vanity.example", "https://fine.example/users/alice"), ""},
	} {
		verdict := test.lists.Sender(test.sender)
		if got := strings.TrimSpace(verdict.Effect + " " + verdict.Code); got != test.want || (test.want != "") != (verdict.Reason != "") {
			t.Errorf("%s: %q (%s), want %q", name, got, verdict.Reason, test.want)
		}
	}
}

// TestReached: what may be contacted before anyone is known.
// TestNarrowestEntryDecides: an entry that names a sender counts before one about the host, in both directions.
func TestNarrowestEntryDecides(t *testing.T) {
	for name, test := range map[string]struct {
		entries []string
		want    string
	}{
		"held by name, host refused":     {[]string{"hold:@ann@b.example", "block:b.example"}, exchange.EffectHold},
		"held as actor, host refused":    {[]string{"hold:https://b.example/users/ann", "block:b.example"}, exchange.EffectHold},
		"refused by name, host held":     {[]string{"block:@ann@b.example", "hold:b.example"}, exchange.EffectRefuse},
		"allowed by name, host refused":  {[]string{"allow:https://b.example/users/ann", "block:b.example"}, ""},
		"host refused, another is named": {[]string{"hold:@bob@b.example", "block:b.example"}, exchange.EffectRefuse},
		"host held":                      {[]string{"hold:b.example"}, exchange.EffectHold},
	} {
		if got := lists(t, false, test.entries...).Sender(actor("@ann@b.example", "https://b.example/users/ann")); got.Effect != test.want {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
}

func TestReached(t *testing.T) {
	only := lists(t, true, "allow:*.fine.example", "allow:@guest@elsewhere.example", "allow:https://third.example/users/x")
	for host, reached := range map[string]bool{
		"fine.example": true, "a.fine.example": true, "elsewhere.example": true, "third.example": true, "other.example": false,
		"inbox.example": true, "web.inbox.example": true,
	} {
		if got := !only.Host(host).Refused(); got != reached {
			t.Errorf("%s: reached %v", host, got)
		}
	}
	for iri, in := range map[string]bool{
		"https://a.fine.example/u": true, "https://other.example/u": false, "https://third.example/users/x": true,
	} {
		if got := !only.Actor(iri).Refused(); got != in {
			t.Errorf("%s: in %v", iri, got)
		}
	}
	open := lists(t, false, "block:https://fine.example/users/eve", "block:*.big.example", "allow:https://big.example/users/friend")
	for iri, in := range map[string]bool{
		"https://fine.example/users/eve": false, "https://fine.example/users/other": true, "https://big.example/users/friend": true,
	} {
		if got := !open.Actor(iri).Refused(); got != in {
			t.Errorf("%s: in %v", iri, got)
		}
	}
	for address, in := range map[string]bool{"@guest@elsewhere.example": true, "@x@elsewhere.example": false, "@x@fine.example": true, "@echo@inbox.example": true} {
		if got := !only.Address(address).Refused(); got != in {
			t.Errorf("%s: in %v", address, got)
		}
	}
}

// TestChangesArrive: added, changed, removed, in any number of portions.
func TestChangesArrive(t *testing.T) {
	source := &changes{}
	l := New(Options{Source: source, Domain: "inbox.example"})
	read := func() bool {
		changed, err := l.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	if read() {
		t.Error("nothing changed")
	}
	for i := range 1234 {
		source.put(t, exchange.ListBlock, fmt.Sprintf("h%d.example", i), exchange.EffectRefuse)
	}
	if !read() || !l.Host("h1233.example").Refused() || read() {
		t.Error("not all were read, or read twice")
	}
	gone := source.rows[7]
	gone.Version, gone.Removed = 5000, true
	source.rows[7] = gone
	slices.SortFunc(source.rows, func(a, b exchange.ListChange) int { return int(a.Version - b.Version) })
	if !read() || l.Host("h7.example").Refused() || !l.Host("h8.example").Refused() {
		t.Error("the removal did not arrive")
	}
	source.fail = context.DeadlineExceeded
	if _, err := l.Read(t.Context()); err == nil || !l.Host("h8.example").Refused() {
		t.Error("while the database is down what was known stays in force")
	}
}

// TestMatchingByLabels holds the lookup against the definition: equal, or the rest after a dot.
func TestMatchingByLabels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.SampledFrom([]string{"a", "b", "ab", "xn--bcher-kva"})
		name := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(label, 1, 4).Draw(t, "labels"), ".") })
		entry, host, below := name.Draw(t, "entry"), name.Draw(t, "host"), rapid.Bool().Draw(t, "below")
		x := index{}
		target := entry
		if below {
			target = subdomains + entry
		}
		x.put(exchange.ListEntry{Kind: exchange.TargetHost, Target: target})
		want := host == entry || below && strings.HasSuffix(host, "."+entry)
		if _, rank := x.host(host); (rank > rankNone) != want {
			t.Fatalf("%s against %s: %v", host, target, !want)
		}
	})
}

func BenchmarkSender(b *testing.B) {
	source := &changes{}
	for i := range 50_000 {
		source.rows = append(source.rows, exchange.ListChange{Version: int64(i + 1), Entry: exchange.ListEntry{
			ID: fmt.Sprintf("%06d", i), List: exchange.ListBlock, Kind: exchange.TargetHost, Target: fmt.Sprintf("*.h%d.example", i), Effect: exchange.EffectRefuse,
		}})
	}
	l := New(Options{Source: source, Domain: "inbox.example"})
	l.table.apply(source.rows)
	sender := actor("@alice@fine.example", "https://fine.example/users/alice")
	for b.Loop() {
		l.Sender(sender)
	}
}

// TestActorAtTheFrontPageIsNotItsServer: an actor may be a fragment of the front page, beside others of that server.
func TestActorAtTheFrontPageIsNotItsServer(t *testing.T) {
	for text, want := range map[string]string{
		"https://social.example/#alice": exchange.TargetActor, "https://social.example#alice": exchange.TargetActor, "https://social.example/": exchange.TargetHost,
	} {
		kind, target, err := ParseTarget(text)
		if err != nil || kind != want || kind == exchange.TargetActor && target != "https://social.example#alice" {
			t.Errorf("%s: %s %q, %v", text, kind, target, err)
		}
	}
}
