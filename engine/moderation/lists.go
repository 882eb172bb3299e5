package moderation

import (
	"strings"
	"sync"

	"inbox/exchange"
	"inbox/identity"
)

// Ranks of a match: the narrowest entry decides, and of equal ones the block.
const (
	rankNone     = 0
	rankBelow    = 1
	rankHost     = rankBelow + 256 // wildcards: the longer the domain, the narrower
	rankPort     = rankHost + 1
	rankAddress  = rankHost + 2
	rankIdentity = rankHost + 3 // an actor or a principal
)

// index is what is on one list, by kind and canonical target.
type index map[string]map[string]exchange.ListEntry

func (x index) put(e exchange.ListEntry) {
	if x[e.Kind] == nil {
		x[e.Kind] = map[string]exchange.ListEntry{}
	}
	x[e.Kind][keyOf(e)] = e
}

// host returns the narrowest entry for a canonical host. It looks up whole labels and compares no substrings.
func (x index) host(host string) (exchange.ListEntry, int) {
	hosts := x[exchange.TargetHost]
	if len(hosts) == 0 {
		return exchange.ListEntry{}, rankNone
	}
	if e, ok := hosts[host]; ok {
		if identity.HostOf(host) != host {
			return e, rankPort
		}
		return e, rankHost
	}

	name := identity.HostOf(host)
	if e, ok := hosts[name]; ok {
		return e, rankHost
	}

	for rest := name; rest != ""; {
		if e, ok := hosts[subdomains+rest]; ok {
			return e, rankBelow + len(rest)
		}
		_, below, found := strings.Cut(rest, ".")
		if !found {
			break
		}
		rest = below
	}

	return exchange.ListEntry{}, rankNone
}

func (x index) address(address string) (exchange.ListEntry, int) {
	if e, ok := x[exchange.TargetAddress][address]; ok {
		return e, rankAddress
	}
	return exchange.ListEntry{}, rankNone
}

func (x index) identity(e *identity.Evidence) (exchange.ListEntry, int) {
	if actors := x[exchange.TargetActor]; len(actors) > 0 {
		if found, ok := actors[canonicalSubject(e.Subject)]; ok {
			return found, rankIdentity
		}
	}
	return x.principal(e.Issuer + " " + e.Subject)
}

func (x index) principal(principal string) (exchange.ListEntry, int) {
	principals := x[exchange.TargetPrincipal]
	if len(principals) == 0 {
		return exchange.ListEntry{}, rankNone
	}
	if found, ok := principals[canonicalPrincipal(principal)]; ok {
		return found, rankIdentity
	}
	return exchange.ListEntry{}, rankNone
}

// table is what this node knows of all lists.
type table struct {
	sync.RWMutex
	byID         map[string]exchange.ListEntry
	block, allow index
	stops        map[stopKey]exchange.ListEntry
	paused       map[string]exchange.ListEntry // by the agent's name
	guests       map[string]int                // hosts of allowed addresses and actors: these must be reached, whatever is said of the host
}

type stopKey struct{ agent, principal string }

func newTable() *table {
	return &table{
		byID: map[string]exchange.ListEntry{}, block: index{}, allow: index{}, stops: map[stopKey]exchange.ListEntry{},
		paused: map[string]exchange.ListEntry{}, guests: map[string]int{},
	}
}

func (t *table) apply(changes []exchange.ListChange) {
	t.Lock()
	defer t.Unlock()
	for _, change := range changes {
		if old, known := t.byID[change.Entry.ID]; known {
			t.drop(old)
		}
		if !change.Removed {
			t.add(change.Entry)
		}
	}
}

func (t *table) add(e exchange.ListEntry) {
	t.byID[e.ID] = e
	switch e.List {
	case exchange.ListBlock:
		t.block.put(e)
	case exchange.ListAllow:
		t.allow.put(e)
		if host := guestOf(e); host != "" {
			t.guests[host]++
		}
	case exchange.ListStop:
		key := stopKey{strings.ToLower(e.Agent), e.Target}
		if old, known := t.stops[key]; known {
			delete(t.byID, old.ID)
		}
		t.stops[key], t.byID[e.ID] = e, e
	case exchange.ListPause:
		t.paused[strings.ToLower(e.Target)] = e
	}
}

func (t *table) drop(e exchange.ListEntry) {
	delete(t.byID, e.ID)
	switch e.List {
	case exchange.ListBlock:
		delete(t.block[e.Kind], keyOf(e))
	case exchange.ListAllow:
		delete(t.allow[e.Kind], keyOf(e))
		if host := guestOf(e); host != "" {
			if t.guests[host]--; t.guests[host] <= 0 {
				delete(t.guests, host)
			}
		}
	case exchange.ListStop:
		delete(t.stops, stopKey{strings.ToLower(e.Agent), e.Target})
	case exchange.ListPause:
		delete(t.paused, strings.ToLower(e.Target))
	}
}

// guestOf returns the host where someone who is allowed lives.
func guestOf(e exchange.ListEntry) string {
	switch e.Kind {
	case exchange.TargetAddress:
		if address, err := identity.ParseAddress(e.Target); err == nil {
			return address.Domain
		}
	case exchange.TargetActor:
		return subjectHost(e.Target)
	case exchange.TargetPrincipal:
		_, subject, _ := strings.Cut(e.Target, " ")
		return subjectHost(subject)
	}
	return ""
}
