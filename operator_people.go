package inbox

import (
	"context"
	"strings"

	"inbox/exchange"
)

// Person is an identity of somebody who linked several, or who told an agent to stop.
type Person struct {
	exchange.PersonIdentity          // PersonID is empty for who linked nothing
	Stopped                 []string `json:"stopped,omitempty"` // agents that were told to stop
}

// maxStops bounds the stop words that are looked through.
const maxStops = 10_000

// People lists linked identities, the newest person first; those of one person stand together. On the first page others
// follow who told an agent to stop. before is "" or the id of the last person of the page before; limit counts persons, 1
// to 500.
func (o *Operator) People(ctx context.Context, before string, limit int) ([]Person, error) {
	found, err := o.store.People(ctx, before, limit)
	if err != nil {
		return nil, err
	}
	stops, order, err := o.stops(ctx)
	if err != nil {
		return nil, err
	}
	people := make([]Person, 0, len(found))
	for _, one := range found {
		people = append(people, Person{PersonIdentity: one, Stopped: agentsOf(stops[one.Principal])})
	}
	if before != "" {
		return people, nil
	}
	for _, principal := range order {
		linked, err := o.store.PersonOf(ctx, principal)
		if err != nil {
			return nil, err
		}
		if len(linked) == 0 {
			people = append(people, stopped(principal, stops[principal]))
		}
	}
	return people, nil
}

// stops gives the stop words by principal, and the principals in the order of their newest one.
func (o *Operator) stops(ctx context.Context) (map[string][]exchange.ListEntry, []string, error) {
	found, order := map[string][]exchange.ListEntry{}, []string(nil)
	filter := exchange.ListFilter{List: exchange.ListStop, Limit: 500}
	for count := 0; count < maxStops; {
		page, err := o.store.ListEntries(ctx, filter)
		if err != nil {
			return nil, nil, err
		}
		for _, entry := range page {
			if _, known := found[entry.Target]; !known {
				order = append(order, entry.Target)
			}
			found[entry.Target] = append(found[entry.Target], entry)
		}
		if count += len(page); len(page) < filter.Limit {
			break
		}
		filter.Before = page[len(page)-1].ID
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
