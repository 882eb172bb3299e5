package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
)

var peopleCases = map[string]func(*testing.T, *probe){
	"are linked":                      linkOfTwo,
	"are linked for one agent":        linkOfOneAgent,
	"are linked pairwise":             linksDoNotSpread,
	"linked again":                    linkAgain,
	"end their links":                 linksEnd,
	"lose links with their token":     linksOfTokens,
	"lose links with their mailbox":   linksOfMailboxes,
	"links that are over":             linkUntil,
	"pages of links":                  linkPages,
	"links that cannot be stored":     linkRefused,
	"long principals of linked sides": linkLong,
}

func linkSide(principal string) exchange.LinkSide {
	return exchange.LinkSide{
		Principal: principal, Issuer: "peer.example", Subject: "mailto:" + principal + "@mail.example", Method: "urn:m",
		Address: identity.ProvenAddress("@" + principal + "@mail.example"),
	}
}

func (p *probe) newLink(agent, a, b string) exchange.PersonLink {
	p.now = p.now.Add(time.Millisecond)
	return exchange.PersonLink{
		ID: newID(), Agent: agent, Sides: [2]exchange.LinkSide{linkSide(a), linkSide(b)}, Digest: "shown", LinkedAt: p.now,
	}
}

func (p *probe) put(link exchange.PersonLink) exchange.PersonLink {
	p.Helper()
	p.trust(func(tx TrustTx) error { return tx.PutLink(p.Context(), link) })
	return link
}

func (p *probe) link(agent, a, b string) exchange.PersonLink {
	p.Helper()
	return p.put(p.newLink(agent, a, b))
}

// linked fails unless these are the principals that are linked with the principal for the agent.
func (p *probe) linked(agent, principal, want string) {
	p.Helper()
	links, err := p.Trust.LinksOf(p.Context(), agent, principal)
	p.ok(err)
	names := []string{}
	for i := range links {
		if _, other, counts := links[i].With(links[i].Agent, principal, time.Now()); counts {
			names = append(names, other.Principal)
		}
	}
	if got := strings.Join(names, " "); got != want {
		p.Errorf("%s is linked for %s with %q, want %q", principal, agent, got, want)
	}
}

func linkOfTwo(t *testing.T, p *probe) {
	p.linked("memory", "a", "")
	link := p.link("memory", "a", "b")
	for _, principal := range []string{"a", "b"} {
		got, err := p.Trust.LinksOf(t.Context(), "memory", principal)
		p.ok(err)
		p.same([]exchange.PersonLink{link}, got)
	}
	p.linked("memory", "c", "")
}

func linkOfOneAgent(_ *testing.T, p *probe) {
	p.link("memory", "a", "b")
	p.linked("doctor", "a", "")
	p.linked("doctor", "b", "")
	p.linked("", "a", "b")
	p.link("doctor", "b", "a")
	p.linked("doctor", "a", "b")
}

func linksDoNotSpread(_ *testing.T, p *probe) {
	p.link("memory", "a", "b")
	p.link("memory", "b", "c")
	p.link("memory", "d", "c")
	p.linked("memory", "a", "b")
	p.linked("memory", "b", "a c")
	p.linked("memory", "c", "b d")
}

func linkAgain(t *testing.T, p *probe) {
	p.link("memory", "a", "b")
	p.link("doctor", "a", "b")
	again := p.newLink("memory", "b", "a")
	again.Digest = "shown anew"
	p.put(again)
	got, err := p.Trust.LinksOf(t.Context(), "memory", "a")
	p.ok(err)
	p.same([]exchange.PersonLink{again}, got)
	p.linked("doctor", "a", "b")
}

func linksEnd(t *testing.T, p *probe) {
	end := func(filter exchange.LinkFilter) int {
		t.Helper()
		ended, err := p.Trust.EndLinks(t.Context(), filter, exchange.LinkEnd{By: "operator", Reason: "a test"})
		p.ok(err)
		return len(ended)
	}
	p.link("memory", "a", "b")
	p.link("doctor", "a", "b")
	p.link("memory", "b", "c")
	third := p.link("memory", "x", "y")

	if end(exchange.LinkFilter{Agent: "memory", Principal: "nobody"}) != 0 {
		t.Error("a link of nobody ended")
	}
	if end(exchange.LinkFilter{Agent: "memory", Principal: "a"}) != 1 {
		t.Error("the link of one agent did not end")
	}
	p.linked("memory", "b", "c")
	p.linked("doctor", "a", "b")
	if end(exchange.LinkFilter{Principal: "b"}) != 2 {
		t.Error("not all links of a principal ended")
	}
	p.linked("memory", "c", "")
	p.linked("doctor", "b", "")
	if end(exchange.LinkFilter{ID: third.ID}) != 1 {
		t.Error("a link did not end by its id")
	}
	p.linked("memory", "x", "")

	for _, filter := range []exchange.LinkFilter{{}, {Agent: "memory"}} {
		if _, err := p.Trust.EndLinks(t.Context(), filter, exchange.LinkEnd{}); !fault.Is(err, fault.Malformed) {
			t.Errorf("%+v: %v, want fault.Malformed", filter, err)
		}
	}
	records, err := p.Trust.AuditRecords(t.Context(), exchange.AuditFilter{Code: exchange.AuditUnlinked, Limit: 10})
	p.ok(err)
	if len(records) != 4 || records[0].Principal != "operator" || !strings.Contains(records[0].Detail, "x and y: a test") {
		t.Errorf("%+v", records)
	}
}

func linksOfTokens(t *testing.T, p *probe) {
	token := exchange.Token{ID: newID(), Name: "agent", Hash: "fa", CreatedAt: p.now}
	ending := exchange.Token{ID: newID(), Name: "soon", Hash: "fb", CreatedAt: p.now.Add(-time.Hour), ExpiresAt: time.Now().Add(-time.Minute)}
	p.ok(p.Records.CreateToken(t.Context(), token))
	p.ok(p.Records.CreateToken(t.Context(), ending))
	for _, one := range []exchange.Token{token, ending} {
		link := p.newLink("memory", "a", "inbox.example token:"+one.ID)
		link.Sides[1].Subject = "token:" + one.ID
		p.put(link)
	}
	p.linked("memory", "a", "inbox.example token:"+token.ID) // the other token is over
	p.ok(p.Records.RevokeToken(t.Context(), token.ID))
	p.linked("memory", "a", "")
	p.linked("memory", "inbox.example token:"+token.ID, "")
	if ended, err := p.Trust.EndLinks(t.Context(), exchange.LinkFilter{Subject: "token:" + token.ID}, exchange.LinkEnd{}); err != nil || len(ended) != 0 {
		t.Errorf("the link of a revoked token is there: %v, %v", ended, err)
	}
}

func linksOfMailboxes(t *testing.T, p *probe) {
	p.link("memory", "a", "b")
	p.link("memory", "a", "c")
	p.link("memory", "a", "d")
	for address, kind := range map[string]string{"b@mail.example": exchange.FailureHard, "c@mail.example": exchange.FailureComplaint, "ab@mail.example": exchange.FailureHard} {
		_, err := p.Suppressions.MailFailed(t.Context(), exchange.MailFailure{Address: address, Kind: kind, DeliveryID: newID()})
		p.ok(err)
	}
	p.linked("memory", "a", "c d") // who complained is still there
}

func linkUntil(_ *testing.T, p *probe) {
	over := p.newLink("memory", "a", "b")
	over.Until = time.Now().Add(-time.Second)
	p.put(over)
	later := p.newLink("memory", "a", "c")
	later.Until = time.Now().Add(time.Hour)
	p.put(later)
	p.linked("memory", "a", "c")
}

func linkPages(t *testing.T, p *probe) {
	p.link("memory", "a", "b")
	p.link("memory", "c", "d")
	p.link("memory", "d", "e")
	page := func(before string, limit int) (names, last string) {
		t.Helper()
		links, err := p.Trust.Links(t.Context(), before, limit)
		p.ok(err)
		var principals []string
		for i := range links {
			for _, side := range links[i].Identities() {
				principals, last = append(principals, side.Principal), side.PersonID
			}
		}
		return strings.Join(principals, " "), last
	}

	all, _ := page("", 0)
	first, last := page("", 2)
	second, _ := page(last, 2)
	if diff := cmp.Diff([]string{"d e c d a b", "d e c d", "a b"}, []string{all, first, second}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none, _ := page("\xff\x00", 2); none == "x" {
		t.Error("a wrong cursor")
	}
}

func linkRefused(t *testing.T, p *probe) {
	cases := []exchange.PersonLink{
		p.newLink("memory", "a", "a"), p.newLink("memory", "a", ""), p.newLink("", "a", "b"), {Agent: "memory", Sides: p.newLink("", "a", "b").Sides},
	}
	for _, bad := range unkeepable {
		cases = append(cases, p.newLink("memory", "a", bad))
	}
	for _, link := range cases {
		err := p.InTx(t.Context(), func(tx TrustTx) error { return tx.PutLink(t.Context(), link) })
		if !fault.Is(err, fault.Malformed) {
			t.Errorf("%+v: %v, want fault.Malformed", link, err)
		}
	}
	p.linked("", "a", "")
}

func linkLong(_ *testing.T, p *probe) {
	long := strings.Repeat("ä", 4096)
	p.link("memory", long+"1", long+"2")
	p.linked("memory", long+"2", long+"1")
}
