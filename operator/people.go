package operator

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
)

// People are persons who agreed that an agent treats two of their addresses as one, or who told an agent to stop.
type People struct {
	Rows PersonRows

	store *store.Store
}

// PersonRows keeps who is linked with whom.
type PersonRows interface {
	Links(ctx context.Context, before string, limit int) ([]exchange.PersonLink, error)
	EndLinks(ctx context.Context, filter exchange.LinkFilter, end exchange.LinkEnd) ([]exchange.PersonLink, error)
}

// List lists both sides of links, the newest link first. Before is "" or the id of the last link of the page before; limit
// counts links, 1 to 500.
func (p People) List(ctx context.Context, before string, limit int) ([]exchange.PersonIdentity, error) {
	links, err := p.Rows.Links(ctx, before, limit)
	var sides []exchange.PersonIdentity
	for i := range links {
		sides = append(sides, links[i].Identities()...)
	}
	return sides, err
}

// Of lists both sides of the links of which one side has the principal, subject or proven address.
func (p People) Of(ctx context.Context, who string) ([]exchange.PersonIdentity, error) {
	found := []exchange.PersonIdentity{}
	err := p.each(ctx, func(link *exchange.PersonLink) {
		if slices.ContainsFunc(link.Sides[:], func(side exchange.LinkSide) bool { return called(side, who) }) {
			found = append(found, link.Identities()...)
		}
	})
	return found, err
}

// called reports whether a name means the side: its principal, its subject or an address that it proved.
func called(side exchange.LinkSide, name string) bool {
	return side.Principal == name || side.Subject == name || identity.SameAddress(string(side.Address), name)
}

const peoplePage = 500

// each visits all links.
func (p People) each(ctx context.Context, visit func(link *exchange.PersonLink)) error {
	for before := ""; ; {
		links, err := p.Rows.Links(ctx, before, peoplePage)
		if err != nil || len(links) == 0 {
			return err
		}
		for i := range links {
			visit(&links[i])
		}
		before = links[len(links)-1].ID
	}
}

// Person is a side of a link, or someone who told an agent to stop.
type Person struct {
	exchange.PersonIdentity                        // PersonID is empty for who linked nothing
	Stated                  identity.StatedAddress `json:"stated_address,omitzero"` // of who told an agent to stop, where nothing proves it
	Stopped                 []string               `json:"stopped,omitempty"`       // agents that were told to stop
}

// maxStops bounds the stop words that are looked through.
const maxStops = 10_000

// stopCursor begins the cursor of a page that only has people who told an agent to stop; the id of the last one's newest stop word follows.
const stopCursor = "stop."

// Page lists both sides of links, the newest link first, with the agents that each told to stop; after the last link come other people who told
// an agent to stop. Before is "" or the Next of the page before; limit counts links and these people, 1 to 500.
func (p People) Page(ctx context.Context, before string, limit int) (page exchange.List[Person], err error) {
	stops, order, err := p.stops(ctx)
	if err != nil {
		return page, err
	}

	last, onlyStops := strings.CutPrefix(before, stopCursor)
	if !onlyStops {
		last = "~" // after every id
		links, err := p.Rows.Links(ctx, before, limit+1)
		if err != nil {
			return page, err
		}
		cut := exchange.CutList(links, limit, func(link exchange.PersonLink) string { return link.ID })
		var sides []exchange.PersonIdentity
		for i := range cut.Items {
			sides = append(sides, cut.Items[i].Identities()...)
		}
		page = exchange.NewList(withStops(sides, stops), cut.Next)
		if limit -= len(cut.Items); page.Next != "" {
			return page, nil
		}
	}

	for _, principal := range order {
		newest := stops[principal][0].ID
		if newest >= last {
			continue
		}
		links, err := p.store.LinksOf(ctx, "", principal)
		switch {
		case err != nil:
			return page, err
		case len(links) > 0:
			continue
		case limit == 0:
			page.Next = stopCursor + last
			return exchange.NewList(page.Items, page.Next), nil
		}
		page.Items, last = append(page.Items, stopped(principal, stops[principal])), newest
		limit--
	}
	return exchange.NewList(page.Items, ""), nil
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
		PersonIdentity: exchange.PersonIdentity{LinkSide: exchange.LinkSide{Principal: principal, Issuer: issuer, Subject: subject}},
		Stated:         identity.Stated(entries[0].Reason), Stopped: agentsOf(entries),
	}
}

// Unlink ends all links of a principal, or those of one agent; by is who wants it. fault.NotFound if there is none.
func (p People) Unlink(ctx context.Context, agent, principal, by string) error {
	ended, err := p.Rows.EndLinks(ctx, exchange.LinkFilter{Agent: agent, Principal: principal}, exchange.LinkEnd{By: by, Reason: "the operator ended it"})
	if err == nil && len(ended) == 0 {
		var linkedFor string
		linkedFor, _, err = p.linked(ctx, agent, principal, func(side exchange.LinkSide) bool { return side.Principal == principal })
		switch {
		case err == nil && linkedFor != agent: // written with other capital letters
			return p.Unlink(ctx, linkedFor, principal, by)
		case err == nil:
			err = fault.Newf(fault.Conflict, "the links of %q changed just now; see: inbox people list", principal)
		}
	}
	return err
}

// UnlinkNamed is Unlink for a side that is named by its principal, or by its subject or proven address where only one linked
// principal has it. fault.NotFound when none is linked, fault.Conflict when several are.
func (p People) UnlinkNamed(ctx context.Context, agent, name, by string) (principal string, err error) {
	agent, principal, err = p.linked(ctx, agent, name, func(side exchange.LinkSide) bool { return called(side, name) })
	if err != nil {
		return "", err
	}
	return principal, p.Unlink(ctx, agent, principal, by)
}

// linked finds the one principal that a name means and that is linked for the agent, with the agent's name as the link has it. The error says what is
// wrong with the name or the agent, and which command to use.
func (p People) linked(ctx context.Context, agent, name string, means func(side exchange.LinkSide) bool) (linkedFor, principal string, err error) {
	found := map[string]map[string]bool{} // agents by linked principal
	err = p.each(ctx, func(link *exchange.PersonLink) {
		for _, side := range link.Sides {
			if !means(side) {
				continue
			}
			if found[side.Principal] == nil {
				found[side.Principal] = map[string]bool{}
			}
			found[side.Principal][link.Agent] = true
		}
	})
	if err != nil {
		return "", "", err
	}
	if len(found) == 0 {
		return "", "", fault.Newf(fault.NotFound, "%q has no link: it must be the principal, the subject or the proven address of a side, as they are listed by: inbox people list --json", name)
	}

	var ofAgent []string
	elsewhere := map[string]bool{}
	for _, side := range slices.Sorted(maps.Keys(found)) {
		is := agent == ""
		for one := range found[side] {
			elsewhere[one] = true
			if strings.EqualFold(one, agent) {
				is, linkedFor = true, one
			}
		}
		if is {
			ofAgent = append(ofAgent, side)
		}
	}

	switch {
	case len(ofAgent) == 0:
		agents := slices.Sorted(maps.Keys(elsewhere))
		return "", "", fault.Newf(fault.NotFound, "%q has no link for agent %q, only for %s; to end that link: inbox people unlink %s --agent %s",
			name, agent, strings.Join(agents, " and "), quoted(name), agents[0])
	case len(ofAgent) > 1:
		return "", "", fault.Newf(fault.Conflict, "%q is the name of several linked people: %s; name one by its principal: inbox people unlink %s",
			name, strings.Join(ofAgent, " and "), quoted(ofAgent[0]))
	}
	return linkedFor, ofAgent[0], nil
}

// quoted writes a name as one word of a command line.
func quoted(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("@.:/_-+%", r)
	}) {
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return name
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
