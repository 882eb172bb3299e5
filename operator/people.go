package operator

import (
	"context"
	"slices"
	"strings"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
)

// People are identities of persons who linked several, or who told an agent to stop.
type People struct {
	Rows PersonRows

	store *store.Store
}

// PersonRows keeps who is linked with whom.
type PersonRows interface {
	People(ctx context.Context, before string, limit int) ([]exchange.PersonIdentity, error)
	Unlink(ctx context.Context, principal string) error
}

// List lists linked identities, the newest person first; those of one person stand together. Before is "" or the id of the
// last person of the page before; limit counts persons, 1 to 500.
func (p People) List(ctx context.Context, before string, limit int) ([]exchange.PersonIdentity, error) {
	return p.Rows.People(ctx, before, limit)
}

// Of lists the identities of the people of whom one has the principal, subject or address, at most 500 people; none when no one is
// linked who has it.
func (p People) Of(ctx context.Context, who string) ([]exchange.PersonIdentity, error) {
	found := []exchange.PersonIdentity{}
	for before := ""; ; {
		people, err := p.List(ctx, before, peoplePage)
		if err != nil || len(people) == 0 {
			return found, err
		}

		for from := 0; from < len(people); {
			to := from
			for ; to < len(people) && people[to].PersonID == people[from].PersonID; to++ {
			}
			if slices.ContainsFunc(people[from:to], func(one exchange.PersonIdentity) bool {
				return one.Principal == who || one.Subject == who || identity.SameAddress(one.Address, who)
			}) {
				found = append(found, people[from:to]...)
			}
			from = to
		}
		before = people[len(people)-1].PersonID
	}
}

// Person is an identity of a person who linked several, or who told an agent to stop.
type Person struct {
	exchange.PersonIdentity          // PersonID is empty for who linked nothing
	Stopped                 []string `json:"stopped,omitempty"` // agents that were told to stop
}

// maxStops bounds the stop words that are looked through.
const maxStops = 10_000

// WithStops lists what List lists, with the agents that each told to stop. On the first page others follow who told an
// agent to stop.
func (p People) WithStops(ctx context.Context, before string, limit int) ([]Person, error) {
	found, err := p.List(ctx, before, limit)
	if err != nil {
		return nil, err
	}

	stops, order, err := p.stops(ctx)
	if err != nil {
		return nil, err
	}

	people := withStops(found, stops)
	if before != "" {
		return people, nil
	}

	for _, principal := range order {
		linked, err := p.store.PersonOf(ctx, principal)
		if err != nil {
			return nil, err
		}
		if len(linked) == 0 {
			people = append(people, stopped(principal, stops[principal]))
		}
	}

	return people, nil
}

// OfWithStops is Of with the agents that each told to stop.
func (p People) OfWithStops(ctx context.Context, who string) ([]Person, error) {
	found, err := p.Of(ctx, who)
	if err != nil {
		return nil, err
	}
	stops, _, err := p.stops(ctx)
	return withStops(found, stops), err
}

func withStops(found []exchange.PersonIdentity, stops map[string][]exchange.ListEntry) []Person {
	people := make([]Person, 0, len(found))
	for _, one := range found {
		people = append(people, Person{PersonIdentity: one, Stopped: agentsOf(stops[one.Principal])})
	}
	return people
}

// stops returns the stop words by principal, and the principals in the order of their newest one.
func (p People) stops(ctx context.Context) (map[string][]exchange.ListEntry, []string, error) {
	found, order, count := map[string][]exchange.ListEntry{}, []string(nil), 0
	for page, err := range entryPages(ctx, p.store, exchange.ListFilter{List: exchange.ListStop}) {
		if err != nil {
			return nil, nil, err
		}

		for _, entry := range page {
			if _, known := found[entry.Target]; !known {
				order = append(order, entry.Target)
			}
			found[entry.Target] = append(found[entry.Target], entry)
		}

		if count += len(page); count >= maxStops {
			break
		}
	}

	return found, order, nil
}

func agentsOf(entries []exchange.ListEntry) (names []string) {
	for _, entry := range entries {
		names = append(names, entry.Agent)
	}
	return names
}

func stopped(principal string, entries []exchange.ListEntry) Person {
	issuer, subject, proven := strings.Cut(principal, " ")
	if !proven {
		issuer, subject = "", principal
	}
	return Person{
		PersonIdentity: exchange.PersonIdentity{Principal: principal, Issuer: issuer, Subject: subject, Address: entries[0].Reason},
		Stopped:        agentsOf(entries),
	}
}

// Unlink takes the identity with the principal out of its person; fault.NotFound when it is not linked.
func (p People) Unlink(ctx context.Context, principal string) error {
	return p.Rows.Unlink(ctx, principal)
}

// UnlinkNamed is Unlink for an identity that is named by its principal, or by its subject or address where only one linked
// identity has it. fault.NotFound when none is linked, fault.Conflict when several are.
func (p People) UnlinkNamed(ctx context.Context, name string) (principal string, err error) {
	if err := p.Unlink(ctx, name); err == nil || !fault.Is(err, fault.NotFound) {
		return name, err
	}
	principal, err = p.linked(ctx, name)
	if err != nil {
		return "", err
	}
	return principal, p.Unlink(ctx, principal)
}

const peoplePage = 500

// linked finds the principal of a linked identity by its subject or address.
func (p People) linked(ctx context.Context, name string) (string, error) {
	found := map[string]bool{}
	for before, more := "", true; more; {
		people, err := p.List(ctx, before, peoplePage)
		if err != nil {
			return "", err
		}

		for _, one := range people {
			if one.Subject == name || identity.SameAddress(one.Address, name) {
				found[one.Principal] = true
			}
			before = one.PersonID
		}
		more = len(people) > 0
	}

	switch len(found) {
	case 0:
		return "", fault.Newf(fault.NotFound, "no person with the principal, subject or address %q is linked; see: inbox people list", name)
	case 1:
		for principal := range found {
			return principal, nil
		}
	}

	return "", fault.Newf(fault.Conflict, "several linked identities have %q; name one by its principal: inbox people list --json", name)
}

// Audit is what the server decided about trust, and what other servers reported.
type Audit struct{ Rows AuditRows }

// AuditRows keeps decisions about trust.
type AuditRows interface {
	AuditRecords(ctx context.Context, filter exchange.AuditFilter) ([]exchange.AuditRecord, error)
	Audit(ctx context.Context, record exchange.AuditRecord) error
}

// Record writes what an operator does; see exchange.OperatorAct.
func (a Audit) Record(ctx context.Context, record exchange.AuditRecord) error {
	return a.Rows.Audit(ctx, record)
}

// Records lists decisions about trust, newest first.
func (a Audit) Records(ctx context.Context, filter exchange.AuditFilter) ([]exchange.AuditRecord, error) {
	records, err := a.Rows.AuditRecords(ctx, filter)
	return listed(records), err
}

// Reports lists what other servers complained about, newest first.
func (a Audit) Reports(ctx context.Context, agent, before string, limit int) ([]exchange.AuditRecord, error) {
	return a.Records(ctx, exchange.AuditFilter{Code: "report:*", Agent: agent, Before: before, Limit: limit})
}
