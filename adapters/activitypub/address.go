package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"inbox/adapters/activitypub/document"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	addressNamespace = "activitypub.address" // actor IRI → checkedAddress

	addressLife        = 7 * 24 * time.Hour
	addressFailureLife = 24 * time.Hour
	addressPause       = 10 * time.Minute // between looks into the store while a check is under way

	maxAddressWait    = 8 * time.Second // that a delivery is kept waiting for the check of its sender's address
	addressCheckPause = time.Minute     // between two checks of one actor for which a delivery waits
)

// What is known about an actor's address.
const (
	addressConfirmed = "confirmed" // WebFinger of the address names this actor
	addressUnchecked = "unchecked" // not asked yet, or no one answered
	addressFailed    = "failed"    // asked, and the answer does not name this actor
)

// checkedAddress is the result of the WebFinger loop.
type checkedAddress struct {
	Address string `json:"address"` // @user@domain
	Status  string `json:"status"`
	// MovedFrom is the account from which this one came, as both said; evidence that grants nothing.
	MovedFrom string `json:"moved_from,omitempty"`
}

// address returns the sender's address without waiting for the network. The first message of an actor starts a check
// as a durable job; until it is done the address is made from the actor's id, which the signature proves: anyone can choose
// the user name of another one.
func (a *actors) address(ctx context.Context, actor *remoteActor) checkedAddress {
	now := a.now()
	if known, found := a.addresses.get(actor.ID, now); found {
		return known
	}

	known, err := a.lastCheck(ctx, actor.ID)
	if known.Status != "" {
		a.addresses.put(actor.ID, known, now.Add(addressPause))
		return known
	}

	known = checkedAddress{Address: idAddress(actor.ID), Status: addressUnchecked}
	if err == nil && a.scheduleCheck(ctx, actor.ID) == nil {
		a.addresses.put(actor.ID, known, now.Add(addressPause))
	}
	return known
}

// provenAddress is address for agents whose rules name people of this user name: for those a name that the actor gave
// itself is not enough, so the first message waits until WebFinger said whose the address is. A server that cannot be asked
// just now makes the delivery fail for a while: its sender comes again.
func (a *actors) provenAddress(ctx context.Context, actor *remoteActor, agent string) (checkedAddress, error) {
	known := a.address(ctx, actor)
	if known.Status != addressUnchecked || a.options.NamesLocal == nil || !a.namedInRules(agent, actor) {
		return known, nil
	}

	if _, lately := a.checked.get(actor.ID, a.now()); !lately {
		a.checked.put(actor.ID, true, a.now().Add(addressCheckPause))
		bounded, cancel := context.WithTimeout(ctx, maxAddressWait)
		defer cancel()

		// One check for all deliveries of the actor that arrive at once.
		_, err, _ := a.once.Do("address "+actor.ID, func() (any, error) { return nil, a.checkActorAddress(bounded, actor) })
		if err != nil {
			a.checked.put(actor.ID, true, a.now().Add(addressCheckPause))
		}
	}

	if known = a.address(ctx, actor); known.Status != addressUnchecked {
		return known, nil
	}
	return known, &fault.Fault{
		Kind: fault.Unavailable, Public: "WebFinger of your server could not be asked who you are; try again later",
		RetryAfter: addressCheckPause, Cause: errAddressUnknown,
	}
}

var errAddressUnknown = errors.New("the sender's address decides about admission and could not be checked")

// namedInRules reports whether the rules of an agent may be about the whole address of an actor. Any domain counts: which one
// the address has is what the check finds out.
func (a *actors) namedInRules(agent string, actor *remoteActor) bool {
	hinted, err := identity.ParseAddress(actor.WebFinger)
	own, _ := identity.ParseAddress(ownAddress(actor))
	return a.options.NamesLocal(agent, own.Local) || err == nil && a.options.NamesLocal(agent, hinted.Local)
}

// ownAddress is @preferredUsername@host-of-the-id as the actor chose it, or a name made from the id where that is no address.
func ownAddress(actor *remoteActor) string {
	if address, err := identity.ParseAddress(actor.Username + "@" + document.HostOf(actor.ID)); err == nil {
		return address.String()
	}

	return idAddress(actor.ID)
}

// folders are the first parts of the ids that servers give to people. A name after one of them is the server's; of a page elsewhere
// on the host, such as /~eve/ann, the whole path is the name.
var folders = []string{"users", "user", "u", "accounts", "account", "profile", "profiles", "people", "author", "actor", "actors", "ap", "activitypub", "federation", "api", "collections"}

// idAddress is an address made from an actor's id alone, which its server chose.
func idAddress(actor string) string {
	host := document.HostOf(actor)
	_, rest, _ := strings.Cut(actor, "://")
	_, path, _ := strings.Cut(rest, "/")
	names := strings.Split(strings.Trim(path, "/"), "/")
	for len(names) > 1 && slices.Contains(folders, names[0]) {
		names = names[1:]
	}

	local := strings.Trim(strings.Map(func(char rune) rune {
		if char == '.' || char == '_' || char == '~' || unicode.IsLetter(char) || unicode.IsDigit(char) {
			return char
		}
		return '-'
	}, strings.Join(names, ".")), "-")
	if address, err := identity.ParseAddress(local + "@" + host); err == nil {
		return address.String()
	}
	return "@unknown@" + host
}

// speaker is the address under which an actor's words stand where only its id is known: the one that WebFinger has confirmed, else one
// made from the id. It asks no other server.
func (a *actors) speaker(ctx context.Context, actor string) string {
	if known, err := a.lastCheck(ctx, actor); err == nil && known.Status == addressConfirmed {
		return known.Address
	}
	return idAddress(actor)
}

// lastCheck returns the stored check of an actor's address; its Status is empty if nothing is stored.
func (a *actors) lastCheck(ctx context.Context, actor string) (known checkedAddress, err error) {
	value, found, err := a.options.State.Get(ctx, addressNamespace, actor)
	if err != nil || !found || json.Unmarshal(value, &known) != nil || known.Address == "" {
		return checkedAddress{}, err
	}
	return known, nil
}

// checkAddress checks one actor's address and stores the result. It is the body of a job.
func (a *actors) checkAddress(ctx context.Context, actorIRI string) error {
	actor, found := a.storedActor(ctx, actorIRI)
	if !found {
		return nil // forgotten since
	}
	return a.checkActorAddress(ctx, actor)
}

// checkActorAddress does the WebFinger loop for one actor and stores the result. Only an answer decides: a server that does
// not answer leaves the address unchecked, and the next job or message asks again.
func (a *actors) checkActorAddress(ctx context.Context, actor *remoteActor) error {
	result, life := checkedAddress{Address: idAddress(actor.ID), Status: addressFailed}, addressFailureLife // its name may be another's
	confirmed, err := a.confirmAddress(ctx, actor)
	switch {
	case err == nil:
		result, life = checkedAddress{Address: confirmed, Status: addressConfirmed}, addressLife
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errNoAnswer):
		result.Status, life = addressUnchecked, addressPause
	}

	if result.MovedFrom, err = a.movedFrom(ctx, actor.ID); err != nil {
		return fmt.Errorf("read moved account: %w", err)
	}

	value, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode address: %w", err)
	}
	if err := a.options.State.Put(ctx, addressNamespace, actor.ID, value, a.now().Add(life)); err != nil {
		return fmt.Errorf("store address: %w", err)
	}

	a.addresses.drop(actor.ID)
	return nil
}

// errNoAnswer is the reason of lookups that say nothing about an address: the server was not reached or is in trouble.
var errNoAnswer = errors.New("webfinger did not answer")

// confirmAddress asks WebFinger for the claimed address; where the answer's subject is another one, that is asked
// once more and must be stable. Its self link must be the actor's id, byte for byte.
func (a *actors) confirmAddress(ctx context.Context, actor *remoteActor) (string, error) {
	claimed, err := identity.ParseAddress(actor.Username + "@" + document.HostOf(actor.ID))
	if hinted, hintErr := identity.ParseAddress(actor.WebFinger); hintErr == nil {
		claimed, err = hinted, nil
	}
	if err != nil {
		return "", err
	}

	for range 2 {
		subject, self, err := a.fetcher.webfinger(ctx, claimed)
		if err != nil {
			return "", err
		}
		if self != actor.ID {
			return "", errors.New("webfinger names another actor")
		}
		if strings.EqualFold(subject.String(), claimed.String()) {
			return subject.String(), nil
		}
		claimed = subject
	}

	return "", errors.New("webfinger does not agree with itself")
}

// resolve finds the actor behind an address.
func (a *actors) resolve(ctx context.Context, address identity.Address) (person, error) {
	if !a.admits(address.Domain) {
		return person{}, errors.New("the host is excluded by this server's operator")
	}
	_, iri, err := a.fetcher.webfinger(ctx, address)
	if err != nil {
		return person{}, err
	}
	if !a.isRemote(iri) {
		return person{}, errors.New("webfinger names no actor on another server")
	}

	actor, found := a.storedActor(ctx, iri)
	if !found || !actor.fresh(a.now()) {
		if actor, err = a.fetchActor(ctx, iri); err != nil {
			return person{}, err
		}
	}

	profile := actor.URL
	if profile == "" {
		profile = actor.ID
	}
	return person{Address: address.String(), Actor: actor.ID, Profile: profile, Inbox: actor.Inbox, NoBot: actor.NoBot}, nil
}

// movedFrom returns the account from which the actor moved here; empty = none that we know of.
func (a *actors) movedFrom(ctx context.Context, actor string) (string, error) {
	value, found, err := a.options.State.Get(ctx, movedNamespace, actor)
	var from movedFrom
	if err != nil || !found {
		return "", err
	}
	if json.Unmarshal(value, &from) != nil {
		return "", errors.New("decode moved account")
	}
	return from.Actor, nil
}

func (a *actors) scheduleCheck(ctx context.Context, actor string) error {
	return a.schedule(ctx, "activitypub:address:"+document.HostOf(actor), laterJob{Kind: jobAddress, Actor: actor})
}

// knownAddressLife is how long the actor behind an address is remembered that an actor claims to have.
const knownAddressLife = 10 * time.Minute

// Open begins a conversation of an agent with an account: it finds the actor behind the address by WebFinger and returns the
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

// Owns reports whether an actor is the one behind an address: WebFinger of the address names it. A user name that an actor
// claims for itself proves nothing. What was found is remembered for ten minutes, so that many who claim an address cost its
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

// confirmed reports whether the address was found to be the actor's within the last days.
func (a *actors) confirmed(ctx context.Context, actor, address string) bool {
	known, err := a.lastCheck(ctx, actor)
	return err == nil && known.Status == addressConfirmed && strings.EqualFold(known.Address, address)
}
