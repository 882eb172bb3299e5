package store

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

const (
	annActor = "inbox.example https://social.example/users/ann"
	annMail  = "inbox.example mailto:ann@social.example"
	eveActor = "inbox.example https://social.example/users/eve"
	annName  = "@ann@social.example"
)

// saidWith stores a message of a sender with evidence.
func saidWith(t *testing.T, s *Store, principal, address string, evidence ...identity.Evidence) string {
	t.Helper()
	return saidTo(t, s, "", principal, address, evidence...)
}

// saidTo is saidWith for a message to an agent.
func saidTo(t *testing.T, s *Store, agent, principal, address string, evidence ...identity.Evidence) string {
	t.Helper()
	id := newRowID()
	turn := said(id, principal, address, "words of "+principal, false)
	if agent != "" {
		turn.Agent = agent
	}
	turn.Message.Sender.Verified, turn.Message.Sender.Identities = len(evidence) > 0, evidence
	err := s.InTx(t.Context(), func(tx *Tx) error {
		_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return turn.ID
}

func turnsOf(t *testing.T, s *Store, names PersonNames) (ids []string) {
	t.Helper()
	if err := s.PersonTurns(t.Context(), names, "", "", func(id string) error { ids = append(ids, id); return nil }); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestStatedAddressIsNobody: an actor that calls itself by the name of another one, and mail without proof under it, are not the
// person, and the person is not them.
func TestStatedAddressIsNobody(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		byActor := saidWith(t, s, annActor, annName, provenBy(annActor, annName))
		byMail := saidWith(t, s, annMail, annName, provenBy(annMail, ""))
		byEve := saidWith(t, s, eveActor, annName, provenBy(eveActor, ""))
		eveElsewhere := saidWith(t, s, eveActor, "@eve@social.example", provenBy(eveActor, "@eve@social.example"))
		saidWith(t, s, "unverified @ANN@social.example", "@ANN@social.example") // another mailbox: RFC 5321, section 2.4
		saidWith(t, s, "inbox.example mailto:ANN@social.example", "@ANN@social.example", provenBy("inbox.example mailto:ANN@social.example", ""))
		forged := saidWith(t, s, "unverified "+annName, annName)

		find := func(query PersonQuery) Person {
			t.Helper()
			person, err := s.FindPerson(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			return person
		}

		ann := find(PersonQuery{Address: annName})
		if diff := cmp.Diff([]string{byActor, byMail}, turnsOf(t, s, ann.Names)); diff != "" {
			t.Errorf("ann's messages (-want +got):\n%s", diff)
		}
		for _, one := range ann.Principals {
			if one.Because != BecauseEvidence || one.Address != annName || one.Method == "" || one.Messages != 1 {
				t.Errorf("%+v", one)
			}
		}
		apart := func(list []Statement) map[string]int {
			found := map[string]int{}
			for _, one := range list {
				found[one.Principal+" "+one.Address.String()+" "+one.Because] = one.Messages
			}
			return found
		}
		others := map[string]int{
			eveActor + " " + annName + " " + OtherSender:                                 1,
			"unverified @ANN@social.example @ANN@social.example " + OtherCapitals:        1,
			"inbox.example mailto:ANN@social.example @ANN@social.example " + OtherSender: 1,
		}
		if diff := cmp.Diff(map[string]int{"unverified " + annName + " " + annName + " " + NotProven: 1}, apart(ann.Unproven)); diff != "" {
			t.Errorf("without proof (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(others, apart(ann.Others)); diff != "" {
			t.Errorf("of others (-want +got):\n%s", diff)
		}

		eve := find(PersonQuery{Principals: []string{eveActor}})
		if diff := cmp.Diff([]string{byEve, eveElsewhere}, turnsOf(t, s, eve.Names)); diff != "" {
			t.Errorf("eve's messages (-want +got):\n%s", diff)
		}
		if slices.Contains(eve.Names.Addresses, annName) || !slices.Contains(eve.Names.Addresses, "@eve@social.example") {
			t.Errorf("eve is known as %v", eve.Names.Addresses)
		}

		explicit := find(PersonQuery{Address: annName, Unproven: true})
		if diff := cmp.Diff([]string{byActor, byMail, forged}, turnsOf(t, s, explicit.Names)); diff != "" {
			t.Errorf("with what is not proven (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(others, apart(explicit.Others)); diff != "" || len(explicit.Unproven) != 0 {
			t.Errorf("left out beside %v (-want +got):\n%s", explicit.Unproven, diff)
		}

		named := find(PersonQuery{Principals: []string{"unverified " + annName}})
		if texts := named.Names.texts(); len(texts) != 0 || !slices.Equal(turnsOf(t, s, named.Names), []string{forged}) {
			t.Errorf("the sender without proof is also known as %v", texts)
		}
	})
}

// TestMessagesOfAConnector: the messages of one person that a program brought are theirs, and not those of others that it brought.
func TestMessagesOfAConnector(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		const carrier, bo = "inbox.example token:1", "chat.example mailto:bo@social.example"
		ofAnn := saidWith(t, s, carrier, "@pat@chat.example", provenBy(carrier, ""), provenBy("chat.example mailto:ann@social.example", ""))
		ofBo := saidWith(t, s, carrier, "@pat@chat.example", provenBy(carrier, ""), provenBy(bo, ""))
		for query, want := range map[string][]string{"@ann@social.example": {ofAnn}, "@bo@social.example": {ofBo}} {
			person, err := s.FindPerson(t.Context(), PersonQuery{Address: identity.ProvenAddress(query)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, turnsOf(t, s, person.Names)); diff != "" || slices.Contains(person.Names.Principals, carrier) {
				t.Errorf("%s is %v (-want +got):\n%s", query, person.Names.Principals, diff)
			}
		}
	})
}

// TestLinkedPrincipalsAreAskedFor: a link in force brings in the other side where that is wanted, and no further one.
func TestLinkedPrincipalsAreAskedFor(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		const far, over, distrusted = "inbox.example mailto:far@other.example", "inbox.example mailto:over@other.example", "gone.example slack:1"
		const elsewhere = "inbox.example mailto:ann@other.example"
		link := func(a, b string) {
			t.Helper()
			side := func(principal string) exchange.LinkSide {
				issuer, subject, _ := strings.Cut(principal, " ")
				return exchange.LinkSide{Principal: principal, Issuer: issuer, Subject: subject}
			}
			if err := s.InTx(t.Context(), func(tx *Tx) error {
				return tx.PutLink(t.Context(), exchange.PersonLink{Agent: "memory", Digest: "shown", Sides: [2]exchange.LinkSide{side(a), side(b)}})
			}); err != nil {
				t.Fatal(err)
			}
		}
		own := saidTo(t, s, "memory", annActor, annName, provenBy(annActor, annName))
		ownElsewhere := saidTo(t, s, "shop", annActor, annName, provenBy(annActor, annName))
		other := saidTo(t, s, "memory", elsewhere, "@ann@other.example", provenBy(elsewhere, ""))
		toAnother := saidTo(t, s, "shop", elsewhere, "@ann@other.example", provenBy(elsewhere, "")) // the link is for memory
		for _, principal := range []string{far, over, distrusted} {
			saidWith(t, s, principal, "@x@other.example", provenBy(principal, ""))
		}
		link(annActor, elsewhere)
		link(elsewhere, far)
		link(annActor, distrusted)
		link(annActor, over)
		if _, err := s.EndLinks(t.Context(), exchange.LinkFilter{Principal: over}, exchange.LinkEnd{}); err != nil {
			t.Fatal(err)
		}

		query := PersonQuery{Address: annName, Believed: func(side exchange.LinkSide) bool { return side.Issuer != "gone.example" }}
		apart, err := s.FindPerson(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{own, ownElsewhere}, turnsOf(t, s, apart.Names)); diff != "" || len(apart.Linked) != 1 ||
			apart.Linked[0].Principal != elsewhere || apart.Linked[0].With != annActor || apart.Linked[0].Agent != "memory" || apart.Linked[0].LinkedAt.IsZero() {
			t.Errorf("%+v (-want +got):\n%s", apart.Linked, diff)
		}

		query.Linked = true
		together, err := s.FindPerson(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{own, ownElsewhere, other}, turnsOf(t, s, together.Names)); diff != "" || len(together.Linked) != 0 ||
			together.Principals[1].Because != BecauseLink || together.Principals[1].Messages != 1 {
			t.Errorf("%+v (-want +got):\n%s", together, diff)
		}
		if diff := cmp.Diff([]LinkedName{{elsewhere, "memory"}}, together.Names.Linked); diff != "" || slices.Contains(together.Names.Addresses, "@ann@other.example") {
			t.Errorf("known as %+v (-want +got):\n%s", together.Names, diff)
		}

		links, err := s.LinksOf(t.Context(), "memory", elsewhere)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(links, func(one exchange.PersonLink) bool { return one.Sides[0].Principal == annActor })
		named, err := s.FindPerson(t.Context(), PersonQuery{Link: &links[at]})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{own, other}, turnsOf(t, s, named.Names)); diff != "" {
			t.Errorf("named by the link (-want +got):\n%s", diff)
		}

		if receipt := erasedPerson(t, s, named.Names); receipt.Counts["messages"] != 2 || receipt.Counts["links"] != 3 {
			t.Errorf("the receipt of the link counts %v", receipt.Counts)
		}
		if diff := cmp.Diff([]string{ownElsewhere, toAnother}, turnsOf(t, s, PersonNames{Principals: []string{annActor, elsewhere}})); diff != "" {
			t.Errorf("after the erasure (-want +got):\n%s", diff)
		}
	})
}

// TestStatedMailIsNotErased: a mail to the operator that only states the address of an erased person stays.
func TestStatedMailIsNotErased(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		proven, stated := keptMail("ann@social.example", "by ann", "hello"), keptMail("ann@social.example", "by eve", "hello")
		capitals := keptMail("Ann@social.example", "by another mailbox", "hello")
		proven.Proof, stated.Proof, capitals.Proof = normalized.AuthEmailDMARC, normalized.AuthNone, normalized.AuthEmailDMARC
		for _, mail := range []exchange.IncomingMail{proven, stated, capitals} {
			if _, err := keep(t, s, mail, exchange.MailCharge{Accounts: []string{"net"}}); err != nil {
				t.Fatal(err)
			}
		}
		erasedPerson(t, s, PersonNames{Principals: []string{annMail}, Addresses: []identity.ProvenAddress{annName}})
		if _, err := s.Mail(t.Context(), stated.ID); err != nil {
			t.Errorf("the mail of another one: %v", err)
		}
		if _, err := s.Mail(t.Context(), capitals.ID); err != nil {
			t.Errorf("the mail of a mailbox that differs in a capital letter: %v", err)
		}
		if _, err := s.Mail(t.Context(), proven.ID); err == nil {
			t.Error("the mail of the erased person is there")
		}
	})
}

// TestNamesOfOthersAreNotRepeated: what a restore looks for are proven names, so that nobody takes the erasure of another one upon
// themselves by stating their address.
func TestNamesOfOthersAreNotRepeated(t *testing.T) {
	s := openedStore(t, Options{DataDir: migrated(t)})
	saidWith(t, s, eveActor, annName, provenBy(eveActor, ""))
	saidWith(t, s, annMail, annName, provenBy(annMail, ""))
	seen := map[string]bool{}
	err := s.EachName(t.Context(), func(principal, _ string, address identity.ProvenAddress) { seen[principal+"|"+string(address)] = true })
	if err != nil {
		t.Fatal(err)
	}
	if seen[eveActor+"|"+annName] || !seen[annMail+"|"+annName] || !seen[eveActor+"|"] {
		t.Errorf("%v", seen)
	}
}

// TestLinksOfBefore: links from before they had an agent count for the agent of the demands that both sides agreed to; others end.
func TestLinksOfBefore(t *testing.T) {
	identityRow := func(principal, subject, address string) string {
		return `INSERT INTO person_identities VALUES ('` + hashKey(principal) + `', '` + principal + `', 'person', 'inbox.example', '` + subject + `', 'urn:m', '` + address + `', 1)`
	}
	demandRow := func(id, agent, purpose, status, principal, notes string) string {
		return `INSERT INTO demands (id, state_hash, turn_id, agent, kind, purpose, status, code_hash, issued_at, expires_at, updated_at, terms, resolution, notes)
			VALUES ('` + id + `', '` + id + `', 't', '` + agent + `', 'consent_required', '` + purpose + `', '` + status + `', '', 1, 2, 3,
			'{"principal":"` + principal + `","action":"sha256:aa"}', '', '` + notes + `')`
	}
	rows := []string{
		identityRow("p a", "mailto:a@x.example", "@a@x.example"), identityRow("p b", "https://x.example/b", "@boss@x.example"), identityRow("p c", "mailto:c@x.example", "@c@x.example"),
		demandRow("d1", "memory", "link", "resolved", "p a", ""),
		demandRow("d2", "memory", "link_confirm", "resolved", "p b", `{"partner":"d1"}`),
		demandRow("d3", "doctor", "link", "resolved", "p a", ""),
		demandRow("d4", "doctor", "link_confirm", "denied", "p b", `{"partner":"d3"}`), // b and c became one person in another way
		demandRow("d5", "doctor", "", "resolved", "p c", `no notes of ours`),
	}

	check := func(t *testing.T, options Options) {
		t.Helper()
		s, err := Open(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		links, err := s.Links(t.Context(), "", 10)
		if err != nil || len(links) != 1 {
			t.Fatalf("%+v, %v", links, err)
		}
		link := links[0]
		if link.Agent != "memory" || link.Sides[0].Principal != "p a" || link.Sides[0].Address != "@a@x.example" || link.Sides[1].Principal != "p b" ||
			link.Sides[1].Address != "" || link.Digest != "sha256:aa" {
			t.Errorf("%+v", link)
		}
		if of, err := s.LinksOf(t.Context(), "memory", "p b"); err != nil || len(of) != 1 {
			t.Errorf("%+v, %v", of, err)
		}
	}

	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		buildWith(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite, 44, rows)
		check(t, Options{DataDir: directory})
	})
	t.Run("postgres", func(t *testing.T) {
		url := storetest.EmptyPostgres(t)
		buildWith(t, "pgx", url, database.Postgres, 44, rows)
		check(t, Options{URL: url, Connections: 2})
	})
}

// TestPersonBeyondASCII: an address with letters beyond ASCII is found in either case of the letters that the database lower-cases and of those
// that it does not.
func TestPersonBeyondASCII(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		for _, local := range []string{"Ärzte", "ärzte", "İstanbul", "\u212aelvin", "СЕРГЕЙ"} {
			name := "@" + local + "@x.example"
			principal, actor := "inbox.example mailto:"+local+"@x.example", "inbox.example https://x.example/users/"+local
			id := saidWith(t, s, principal, name, provenBy(principal, name))
			other := saidWith(t, s, actor, name, provenBy(actor, name))
			written := name
			person, err := s.FindPerson(t.Context(), PersonQuery{Address: identity.ProvenAddress(written), Principals: []string{MailPrincipal("inbox.example", identity.ProvenAddress(written))}})
			if err != nil {
				t.Fatal(err)
			}
			if got := turnsOf(t, s, person.Names); !slices.Equal(got, []string{id, other}) {
				t.Errorf("%s: found %v of %v, %+v", written, got, []string{id, other}, person)
			}
		}
	})
}
