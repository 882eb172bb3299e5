package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/exchange"
	"inbox/internal/fault"
)

var peopleCases = map[string]func(*testing.T, *probe){
	"are linked":                    peopleLink,
	"are merged":                    peopleMerge,
	"linked again":                  peopleAgain,
	"merge at once":                 peopleConcurrent,
	"are unlinked":                  peopleUnlink,
	"pages keep a person together":  peoplePages,
	"identities that do not differ": peopleRefused,
	"long principals":               peopleLong,
}

func (p *probe) identity(principal string) exchange.PersonIdentity {
	p.now = p.now.Add(time.Millisecond)
	return exchange.PersonIdentity{
		Principal: principal, Issuer: "peer.example", Subject: "acct:" + principal, Method: "urn:m", Address: "@" + principal, LinkedAt: p.now,
	}
}

func (p *probe) link(principals ...string) {
	p.Helper()
	var identities []exchange.PersonIdentity
	for _, principal := range principals {
		identities = append(identities, p.identity(principal))
	}
	p.trust(func(tx TrustTx) error { return tx.LinkPerson(p.Context(), identities) })
}

// person returns the principals of a principal's person and the person's id.
func (p *probe) person(principal string) (principals, id string) {
	p.Helper()
	identities, err := p.Trust.PersonOf(p.Context(), principal)
	p.ok(err)
	names := []string{}
	for _, identity := range identities {
		if id != "" && id != identity.PersonID {
			p.Errorf("%s belongs to two persons", principal)
		}
		names, id = append(names, identity.Principal), identity.PersonID
	}
	return strings.Join(names, " "), id
}

func (p *probe) together(principal, want string) {
	p.Helper()
	if got, _ := p.person(principal); got != want {
		p.Errorf("the person of %s is %q, want %q", principal, got, want)
	}
}

func peopleLink(t *testing.T, p *probe) {
	p.together("a", "")
	a, b := p.identity("a"), p.identity("b")
	a.PersonID = newID()
	p.trust(func(tx TrustTx) error { return tx.LinkPerson(t.Context(), []exchange.PersonIdentity{a, b}) })
	b.PersonID = a.PersonID
	got, err := p.Trust.PersonOf(t.Context(), "b")
	p.ok(err)
	p.same([]exchange.PersonIdentity{a, b}, got)
	p.together("c", "")
}

func peopleMerge(t *testing.T, p *probe) {
	p.link("a", "b")
	p.link("c", "d")
	_, older := p.person("a")
	_, newer := p.person("c")
	if older == newer || older == "" {
		t.Fatalf("persons %q and %q", older, newer)
	}

	p.link("d", "a")
	p.together("c", "a b c d")

	if _, id := p.person("c"); id != older {
		t.Errorf("person %s, want the older one", id)
	}

	p.link("e", "c") // one side is new
	p.together("e", "a b c d e")
}

func peopleAgain(t *testing.T, p *probe) {
	first, second := p.identity("a"), p.identity("b")
	p.trust(func(tx TrustTx) error { return tx.LinkPerson(t.Context(), []exchange.PersonIdentity{first, second}) })
	again := p.identity("a")
	again.Address, again.Method, again.PersonID = "@moved", "urn:other", newID()
	p.trust(func(tx TrustTx) error { return tx.LinkPerson(t.Context(), []exchange.PersonIdentity{again, second}) })
	_, first.PersonID = p.person("a")
	first.Address = "@moved"
	second.PersonID = first.PersonID
	got, err := p.Trust.PersonOf(t.Context(), "a")
	p.ok(err)
	p.same([]exchange.PersonIdentity{first, second}, got)
}

// peopleConcurrent links a ring of identities from several sides at once: one person comes out.
func peopleConcurrent(t *testing.T, p *probe) {
	const size = 12
	names := make([]string, size)
	links := make([][]exchange.PersonIdentity, size)

	for i := range names {
		names[i] = fmt.Sprintf("p%02d", i)
	}

	for i := range links {
		links[i] = []exchange.PersonIdentity{p.identity(names[i]), p.identity(names[(i+5)%size])}
	}

	var group sync.WaitGroup
	for _, link := range links {
		group.Go(func() {
			if err := p.InTx(t.Context(), func(tx TrustTx) error { return tx.LinkPerson(t.Context(), link) }); err != nil {
				t.Errorf("link: %v", err)
			}
		})
	}

	group.Wait()
	identities, err := p.Trust.PersonOf(t.Context(), names[0])
	if err != nil || len(identities) != size {
		t.Errorf("%d identities of one person, %v", len(identities), err)
	}
}

func peopleUnlink(t *testing.T, p *probe) {
	p.link("a", "b")
	p.link("b", "c")
	p.link("x", "y")
	p.missing(p.Trust.Unlink(t.Context(), "nobody"))
	p.ok(p.Trust.Unlink(t.Context(), "a"))
	p.together("a", "")
	p.together("b", "b c")
	p.ok(p.Trust.Unlink(t.Context(), "b"))
	p.together("c", "")
	p.missing(p.Trust.Unlink(t.Context(), "c"))
	p.together("x", "x y")
}

func peoplePages(t *testing.T, p *probe) {
	p.link("a", "b")
	p.link("c", "d")
	p.link("d", "e")
	p.link("f", "g")
	page := func(before string, limit int) (principals, last string) {
		t.Helper()
		identities, err := p.Trust.People(t.Context(), before, limit)
		p.ok(err)
		names := []string{}
		for _, identity := range identities {
			names, last = append(names, identity.Principal), identity.PersonID
		}
		return strings.Join(names, " "), last
	}

	all, _ := page("", 0)
	first, last := page("", 2)
	second, _ := page(last, 2)
	if diff := cmp.Diff([]string{"f g c d e a b", "f g c d e", "a b"}, []string{all, first, second}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none, _ := page("\xff\x00", 2); none == "x" {
		t.Error("a wrong cursor")
	}
}

func peopleRefused(t *testing.T, p *probe) {
	a, empty := p.identity("a"), p.identity("")
	cases := [][]exchange.PersonIdentity{nil, {a}, {a, a}, {a, empty}}
	for _, bad := range unkeepable {
		cases = append(cases, []exchange.PersonIdentity{a, p.identity(bad)})
	}

	for _, identities := range cases {
		err := p.InTx(t.Context(), func(tx TrustTx) error { return tx.LinkPerson(t.Context(), identities) })
		if !fault.Is(err, fault.Malformed) {
			t.Errorf("%+v: %v, want fault.Malformed", identities, err)
		}
	}
	p.together("a", "")
}

func peopleLong(_ *testing.T, p *probe) {
	long := strings.Repeat("ä", 4096)
	p.link(long+"1", long+"2")
	p.together(long+"2", long+"1 "+long+"2")
}
