package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// PersonNames are the names by which a person is known here. Evidence vouches for each of them, or the operator does.
type PersonNames struct {
	Principals []string                 `json:"principals"` // as in messages
	Addresses  []identity.ProvenAddress `json:"addresses,omitempty"`
	Linked     []LinkedName             `json:"linked,omitempty"` // with one of the principals
	// Unproven means that the operator says that messages without proof that state one of the addresses are the person's, too.
	Unproven bool `json:"unproven,omitempty"`
}

// LinkedName is a principal that is linked with a person for one agent. Only what it said to that agent is the person's: the consent to the link was
// asked for that agent alone.
type LinkedName struct {
	Principal string `json:"principal"`
	Agent     string `json:"agent"`
}

// texts are the forms in which the names stand in documents and notes, in lower case. The address of a sender who proved
// nothing is not one of them: it may be another person's.
func (p PersonNames) texts() []string {
	found := map[string]bool{}
	for _, principal := range p.Principals {
		if _, subject, _ := strings.Cut(principal, " "); !strings.HasPrefix(principal, normalized.Unproven) {
			found[strings.ToLower(subject)] = true
		}
	}
	for _, address := range p.Addresses {
		found[strings.ToLower(address.Mail())] = true // also inside of @user@domain and mailto:user@domain
	}
	for name := range maps.Clone(found) { // a command, or a peer's report, has the domain as it was written
		found[strings.ToLower(identity.Spelled(name))] = true
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found))
}

// PersonQuery says who is looked for.
type PersonQuery struct {
	Principals []string               // that the operator named
	Address    identity.ProvenAddress // that the operator named; empty = none
	Link       *exchange.PersonLink   // that the operator named: both sides, for its agent
	Linked     bool                   // with the principals that are linked with these
	Unproven   bool                   // with messages without proof that state the address
	// Believed reports whether the issuer of a side is still trusted.
	Believed func(side exchange.LinkSide) bool
}

// Person is who a name means, with the reason for each principal, and what is left out.
type Person struct {
	Names      PersonNames `json:"names"`
	Principals []Belonging `json:"principals"`
	Linked     []Belonging `json:"linked,omitempty"`   // linked with the person, and left out
	Unproven   []Statement `json:"unproven,omitempty"` // state the address without proof, and are left out
	Others     []Statement `json:"others,omitempty"`   // state the address or one like it, and are never the person's
}

// Reasons why a principal belongs to a person.
const (
	BecauseNamed    = "named"    // the operator named it
	BecauseEvidence = "evidence" // its evidence vouches for the address
	BecauseLink     = "link"     // both sides agreed to a link that is in force
	BecauseUnproven = "unproven" // it states the address, and the operator says that this suffices
)

// Belonging is a principal with the reason why it belongs to a person.
type Belonging struct {
	Principal string                 `json:"principal"`
	Because   string                 `json:"because"`
	Address   identity.ProvenAddress `json:"address,omitempty"` // for which its evidence vouches
	Method    string                 `json:"method,omitempty"`  // of that evidence
	With      string                 `json:"linked_with,omitempty"`
	Agent     string                 `json:"agent,omitempty"` // that asked for the link: only messages to it belong to the person
	LinkedAt  time.Time              `json:"linked_at,omitzero"`
	Messages  int                    `json:"messages"`
}

// scope names the messages that belong to the person.
func (b Belonging) scope() LinkedName { return LinkedName{b.Principal, b.Agent} }

// Why says it in a sentence.
func (b Belonging) Why() string {
	switch b.Because {
	case BecauseEvidence:
		return fmt.Sprintf("%s vouches for %s", b.Method, b.Address)
	case BecauseLink:
		return fmt.Sprintf("linked with %s by consent for agent %s at %s, for messages to %s only", b.With, b.Agent, b.LinkedAt.UTC().Format(time.RFC3339), b.Agent)
	case BecauseUnproven:
		return "states the address, and --unproven takes that as enough"
	}
	if b.Address != "" {
		return fmt.Sprintf("you named it; %s vouches for %s", b.Method, b.Address)
	}
	return "you named it"
}

// Statement is a principal whose messages state the address of a person, or one that differs from it in capital letters only, which their evidence
// does not prove.
type Statement struct {
	Principal string                 `json:"principal"`
	Address   identity.StatedAddress `json:"address"`
	Because   string                 `json:"because"` // why it is not the person
	Messages  int                    `json:"messages"`
}

// Why says it in a sentence.
func (s Statement) Why() string {
	switch s.Because {
	case OtherSender:
		return fmt.Sprintf("%s is proven to be another sender, and states %s", s.Principal, s.Address)
	case OtherCapitals:
		return fmt.Sprintf("%s states %s, which is another address: capital letters count", s.Principal, s.Address)
	}
	return fmt.Sprintf("%s states %s without proof", s.Principal, s.Address)
}

// Reasons why a principal that states an address is not the person.
const (
	NotProven     = "unproven"      // nothing proves the sender
	OtherSender   = "other_sender"  // evidence proves that it is another sender
	OtherCapitals = "other_letters" // it is another address: local parts are compared letter by letter (RFC 5321, section 2.4)
)

// FindPerson finds the principals of a person. A principal belongs to them because the operator named it, because its own
// evidence vouches for the address that the operator named, or because of a link in force. Nothing that is found so brings in
// others. It reads all messages twice, beside the writer.
func (s personEraser) FindPerson(ctx context.Context, query PersonQuery) (Person, error) {
	found := &personSearch{query: query, belongs: map[LinkedName]*Belonging{}, stated: map[string]*Statement{}, proven: map[identity.ProvenAddress]bool{}}
	for _, principal := range query.Principals {
		found.add(Belonging{Principal: principal, Because: BecauseNamed})
	}
	if query.Link != nil {
		for side := range query.Link.Sides {
			found.add(linkedBy(query.Link, side))
		}
	}

	if query.Address != "" {
		found.proven[query.Address] = true
		if err := s.eachMessage(ctx, messagesWith("", query.Address.Mail()), "", "", func(m personMessage) error { found.compare(m); return nil }); err != nil {
			return Person{}, err
		}
	}
	if query.Unproven {
		found.acceptUnproven()
	}

	linked, err := s.linkedWith(ctx, found)
	if err != nil {
		return Person{}, err
	}
	if query.Linked {
		for _, one := range linked {
			found.add(one)
		}
		linked = nil
	}

	err = s.eachMessage(ctx, messagesOf(found.names()), "", "", func(m personMessage) error { found.count(m); return nil })
	return found.person(linked), err
}

// personSearch collects what is found of a person.
type personSearch struct {
	query   PersonQuery
	order   []LinkedName // without agent: all messages of the principal
	belongs map[LinkedName]*Belonging
	stated  map[string]*Statement
	proven  map[identity.ProvenAddress]bool
}

func (p *personSearch) add(one Belonging) {
	if p.has(one.scope()) {
		return
	}
	p.order = append(p.order, one.scope())
	p.belongs[one.scope()] = &one
	if one.Address != "" && one.Agent == "" {
		p.proven[one.Address] = true
	}
}

// has reports whether the messages belong to the person already.
func (p *personSearch) has(scope LinkedName) bool {
	return p.belongs[scope] != nil || p.belongs[LinkedName{Principal: scope.Principal}] != nil
}

// compare looks at a message that has the address of the query somewhere.
func (p *personSearch) compare(m personMessage) {
	proven := false
	for i := range m.sender.Identities {
		if e := &m.sender.Identities[i]; e.Proven() == p.query.Address {
			proven = true
			p.add(Belonging{Principal: principalOf(e), Because: BecauseEvidence, Address: p.query.Address, Method: e.Method})
		}
	}

	stated := m.sender.Address
	if proven || !stated.Resembles(p.query.Address) {
		return
	}
	if p.stated[m.principal] == nil {
		p.stated[m.principal] = &Statement{Principal: m.principal, Address: stated, Because: notThePerson(m.principal, p.query.Address)}
	}
	p.stated[m.principal].Messages++
}

// notThePerson says why a principal that states an address is not the person who has it.
func notThePerson(principal string, address identity.ProvenAddress) string {
	stated, unproven := strings.CutPrefix(principal, normalized.Unproven)
	switch {
	case !unproven:
		return OtherSender
	case !identity.SameAddress(stated, string(address)):
		return OtherCapitals
	}
	return NotProven
}

// acceptUnproven adds the senders without any proof who state exactly the address. Senders who proved to be another one stay apart.
func (p *personSearch) acceptUnproven() {
	for _, principal := range slices.Sorted(maps.Keys(p.stated)) {
		if p.stated[principal].Because == NotProven {
			p.add(Belonging{Principal: principal, Because: BecauseUnproven})
		}
	}
}

// count looks at a message of the person.
func (p *personSearch) count(m personMessage) {
	counted := map[string]bool{}
	for _, principal := range m.principals() {
		one := p.belongs[LinkedName{Principal: principal}]
		if one == nil {
			one = p.belongs[LinkedName{principal, m.agent}]
		}
		if one != nil && !counted[principal] {
			counted[principal] = true
			one.Messages++
		}
	}
	for i := range m.sender.Identities {
		e := &m.sender.Identities[i]
		one, address := p.belongs[LinkedName{Principal: principalOf(e)}], e.Proven()
		if one == nil || address == "" {
			continue
		}
		p.proven[address] = true
		if one.Address == "" {
			one.Address, one.Method = address, e.Method
		}
	}
}

func (p *personSearch) names() PersonNames {
	names := PersonNames{Principals: []string{}, Addresses: slices.Sorted(maps.Keys(p.proven)), Unproven: p.query.Unproven}
	for _, scope := range p.order {
		if scope.Agent == "" {
			names.Principals = append(names.Principals, scope.Principal)
		} else {
			names.Linked = append(names.Linked, scope)
		}
	}
	slices.Sort(names.Principals)
	return names
}

func (p *personSearch) person(linked []Belonging) Person {
	found := Person{Names: p.names(), Principals: []Belonging{}, Linked: linked}
	for _, scope := range p.order {
		found.Principals = append(found.Principals, *p.belongs[scope])
	}
	for _, principal := range slices.Sorted(maps.Keys(p.stated)) {
		switch one := *p.stated[principal]; {
		case p.has(LinkedName{Principal: principal}):
		case one.Because == NotProven:
			found.Unproven = append(found.Unproven, one)
		default:
			found.Others = append(found.Others, one)
		}
	}
	return found
}

// linkedWith returns the principals that are linked with those of the search, and are not among them.
func (s personEraser) linkedWith(ctx context.Context, found *personSearch) (linked []Belonging, err error) {
	for _, scope := range found.order {
		links, err := personStore(s).LinksOf(ctx, scope.Agent, scope.Principal)
		if err != nil {
			return nil, err
		}
		for i := range links {
			link := &links[i]
			own, other, counts := link.With(link.Agent, scope.Principal, s.now())
			if !counts || found.has(LinkedName{other.Principal, link.Agent}) || found.query.Believed != nil && (!found.query.Believed(own) || !found.query.Believed(other)) {
				continue
			}
			side := slices.IndexFunc(link.Sides[:], func(one exchange.LinkSide) bool { return one.Principal == other.Principal })
			linked = append(linked, linkedBy(link, side))
		}
	}
	return linked, nil
}

// linkedBy returns a side of a link, as what belongs to the other side.
func linkedBy(link *exchange.PersonLink, side int) Belonging {
	one := link.Sides[side]
	return Belonging{
		Principal: one.Principal, Because: BecauseLink, Address: one.Address, Method: one.Method,
		With: link.Sides[1-side].Principal, Agent: link.Agent, LinkedAt: link.LinkedAt,
	}
}

// principalOf is the principal that one piece of evidence makes.
func principalOf(e *identity.Evidence) string { return e.Issuer + " " + e.Subject }

// personMessage is who sent a message.
type personMessage struct {
	id, agent, principal string
	sender               normalized.Sender
}

// principals are those whose message it is: the one under which it was accepted, the one that it would be accepted under now, and
// those that other evidence about the sender proves by an address.
func (m personMessage) principals() []string {
	found := []string{m.principal}
	if len(m.sender.Identities) > 0 {
		found = append(found, m.sender.Principal())
	}
	for i := range m.sender.Identities {
		if e := &m.sender.Identities[i]; e.Proven() != "" {
			found = append(found, principalOf(e))
		}
	}
	return found
}

// messagesWith is a condition for messages of a principal, or with a text, in SQL. It selects too many rather than too few.
func messagesWith(principal, text string) personCondition {
	var c personCondition
	if principal != "" {
		c.arguments, c.where = append(c.arguments, principal), append(c.where, "principal = ?")
	}
	if text != "" {
		pattern := []byte(text) // letters beyond ASCII are left open: SQLite does not lower-case them, and some become ASCII
		for i, b := range pattern {
			switch {
			case b >= 'A' && b <= 'Z':
				pattern[i] = b + 'a' - 'A'
			case (b < 'a' || b > 'z') && (b < '0' || b > '9') && strings.IndexByte("@.:/-", b) < 0:
				pattern[i] = '%' // it may be written in another way in JSON
			}
		}
		c.arguments, c.where = append(c.arguments, "%"+string(pattern)+"%"), append(c.where, "LOWER(message) LIKE ?")
	}
	return c
}

// messagesOf selects messages of a person, also where the principal is not the one under which the message was accepted.
func messagesOf(names PersonNames) (c personCondition) {
	principals := slices.Clone(names.Principals)
	for _, one := range names.Linked {
		principals = append(principals, one.Principal)
	}
	for _, principal := range principals {
		text := ""
		if _, subject, _ := strings.Cut(principal, " "); !strings.HasPrefix(principal, normalized.Unproven) && !strings.HasPrefix(subject, "token:") {
			text = subject
		}
		one := messagesWith(principal, text)
		c.arguments, c.where = append(c.arguments, one.arguments...), append(c.where, one.where...)
	}
	return c
}

// personCondition is a list of conditions of which one has to hold.
type personCondition struct {
	where     []string
	arguments []any
}

// sql numbers the arguments, of which some come before.
func (c personCondition) sql(before int) string {
	text := strings.Join(c.where, " OR ")
	for i := range c.arguments {
		text = strings.Replace(text, "?", fmt.Sprintf("$%d", before+i+1), 1)
	}
	return text
}

// eachMessage visits the messages that fit the condition between two ids, in order. It reads all of them a page at a time.
func (s personEraser) eachMessage(ctx context.Context, condition personCondition, after, until string, visit func(personMessage) error) error {
	if len(condition.where) == 0 {
		return nil
	}
	if until == "" {
		until = "~"
	}

	query := `SELECT id, agent, principal, message FROM turns WHERE id > $1 AND id <= $2 AND (` + condition.sql(2) + `) ORDER BY id`
	for {
		begun, last := time.Now(), until
		more, err := first(ctx, s.engine.Reader(), `SELECT id FROM turns WHERE id > $1 AND id <= $2 ORDER BY id LIMIT 1 OFFSET 999`, []any{after, until}, &last)
		if err != nil {
			return err
		}

		var page []personMessage
		err = s.engine.Reader().Each(ctx, query, append([]any{after, last}, condition.arguments...), func(r row) error {
			one, err := scanPersonMessage(r)
			page = append(page, one)
			return err
		})
		if err != nil {
			return err
		}

		for _, one := range page {
			if err := visit(one); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		after = last
		if err := rest(ctx, begun); err != nil {
			return err
		}
	}
}

func scanPersonMessage(r row) (m personMessage, err error) {
	var stored string
	if err := r.Scan(&m.id, &m.agent, &m.principal, &stored); err != nil {
		return m, err
	}
	var message struct {
		Sender normalized.Sender `json:"sender"`
	}
	if err := json.Unmarshal([]byte(stored), &message); err != nil {
		return m, fmt.Errorf("decode message of turn %s: %w", m.id, err)
	}
	m.sender = message.Sender
	return m, nil
}

// PersonTurns visits the ids of a person's messages that came before the id, in the order of their arrival, after the given one.
func (s personEraser) PersonTurns(ctx context.Context, names PersonNames, after, until string, visit func(id string) error) error {
	own := names.scopes()
	return s.eachMessage(ctx, messagesOf(names), after, until, func(m personMessage) error {
		if !m.of(own) {
			return nil
		}
		return visit(m.id)
	})
}

// scopes are the messages of the person: all of a principal, or those to one agent.
func (p PersonNames) scopes() map[LinkedName]bool {
	own := map[LinkedName]bool{}
	for _, principal := range p.Principals {
		own[LinkedName{Principal: principal}] = true
	}
	for _, one := range p.Linked {
		own[one] = true
	}
	return own
}

func (m personMessage) of(own map[LinkedName]bool) bool {
	return slices.ContainsFunc(m.principals(), func(principal string) bool {
		return own[LinkedName{Principal: principal}] || own[LinkedName{principal, m.agent}]
	})
}

// Sent reports whether a message is the person's.
func (p PersonNames) Sent(turn exchange.TurnRecord) bool {
	return personMessage{id: turn.ID, agent: turn.Agent, principal: turn.Principal, sender: turn.Message.Sender}.of(p.scopes())
}

// namesOfRows are tables with names of persons beside messages, in the form of PersonNames. A mail without proof only states its sender.
var namesOfRows = []string{
	`SELECT first_principal, first_address FROM links`,
	`SELECT second_principal, second_address FROM links`,
	`SELECT owner, '' FROM sessions`,
	`SELECT principal, '' FROM watches`,
	`SELECT owner, '' FROM task_runs`,
	`SELECT '', '@' || address FROM mail_failures`,
	`SELECT '', '@' || address FROM mail_suppressions`,
}

// EachName visits the principals and proven addresses of all persons who are known here, some of them many times; either is empty where a
// row has not both. Agent is the one that a message was for, else empty. It reads all messages, in pages.
func (s personEraser) EachName(ctx context.Context, visit func(principal, agent string, address identity.ProvenAddress)) error {
	for _, query := range namesOfRows {
		err := s.engine.Reader().Each(ctx, query, nil, func(r row) error {
			var principal, address string
			err := r.Scan(&principal, &address)
			visit(principal, "", identity.ProvenAddress(address))
			return err
		})
		if err != nil {
			return err
		}
	}

	err := s.engine.Reader().Each(ctx, `SELECT head FROM mails WHERE sender <> ''`, nil, func(r row) error {
		var head string
		err := r.Scan(&head)
		if author, proven := authorOf(head); proven {
			visit("", "", author)
		}
		return err
	})
	if err != nil {
		return err
	}

	return s.eachMessage(ctx, personCondition{where: []string{"1 = 1"}}, "", "", func(m personMessage) error {
		visit(m.principal, m.agent, "")
		for i := range m.sender.Identities {
			e := &m.sender.Identities[i]
			visit(principalOf(e), m.agent, e.Proven())
		}
		return nil
	})
}

// authorOf returns the address in From of a kept mail, and whether something proves that its author wrote it.
func authorOf(head string) (author identity.ProvenAddress, proven bool) {
	var mail exchange.Mail
	if json.Unmarshal([]byte(head), &mail) != nil {
		return "", false
	}
	address, err := identity.ParseAddress(mail.From)
	if err != nil {
		return "", false
	}
	return identity.ProvenAddress(address.String()), mail.Proven()
}
