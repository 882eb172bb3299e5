package activitypub

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// knownAddressLife is how long the actor behind an address is remembered that somebody claims to have.
const knownAddressLife = 10 * time.Minute

// Open begins a conversation of an agent with somebody: it finds the actor behind the address by WebFinger and gives the
// route of a reply that answers no note, for that actor alone. Errors are classed with fault.RetryIn and fault.GiveUp.
func (a *actors) Open(ctx context.Context, agent, address string) (json.RawMessage, error) {
	if _, known := a.options.Directory.Agent(agent); !known {
		return nil, fault.GiveUp("there is no agent "+agent, nil)
	}
	parsed, err := identity.ParseAddress(address)
	switch {
	case err != nil:
		return nil, fault.GiveUp("the address cannot be read", err)
	case a.hosts[parsed.Domain]:
		return nil, fault.GiveUp("the address is one of this server", nil)
	case !a.admits(parsed.Domain):
		return nil, fault.GiveUp("the host is excluded by this server's operator", nil)
	}
	found, err := a.resolve(ctx, parsed)
	if err != nil {
		return nil, fault.RetryIn(0, parsed.String()+" could not be found by WebFinger", err)
	}
	notes, err := json.Marshal(route{
		Visibility: normalized.VisibilityDirect, Actor: found.Actor, Address: found.Address, Profile: found.Profile, Inbox: found.Inbox,
	})
	if err != nil {
		return nil, fmt.Errorf("encode route: %w", err)
	}
	return notes, nil
}

// Owns says whether an actor is the one behind an address: WebFinger of the address names it. A user name that an actor
// gives itself says nothing. What was found is remembered for ten minutes, so that many who claim an address cost its
// server one request. An error means that it could not be asked about an actor of its own host; actors of other hosts are
// not taken for it then.
func (a *actors) Owns(ctx context.Context, actor, address string) (bool, error) {
	parsed, ok := a.elsewhere(address)
	if !ok {
		return false, nil
	}
	key := parsed.String()
	if named, known := a.named.get(key, a.now()); known {
		return named == actor, nil
	}
	_, named, err := a.fetcher.webfinger(ctx, parsed)
	switch {
	case err == nil:
		a.named.put(key, named, a.now().Add(knownAddressLife))
		return named == actor, nil
	case a.confirmed(ctx, actor, key):
		return true, nil
	case document.HostOf(actor) == parsed.Domain:
		return false, err
	}
	return false, nil
}

// elsewhere reads an address on another server that we may deal with.
func (a *actors) elsewhere(address string) (identity.Address, bool) {
	parsed, err := identity.ParseAddress(address)
	return parsed, err == nil && !a.hosts[parsed.Domain] && a.admits(parsed.Domain)
}

// confirmed says whether the address was found to be the actor's within the last days.
func (a *actors) confirmed(ctx context.Context, actor, address string) bool {
	value, found, err := a.options.State.Get(ctx, addressNamespace, actor)
	var known checkedAddress
	return err == nil && found && json.Unmarshal(value, &known) == nil &&
		known.Status == addressConfirmed && strings.EqualFold(known.Address, address)
}
