package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"inbox/identity"
	"inbox/internal/safehttp"
)

const (
	addressNamespace = "activitypub.address" // actor IRI → checkedAddress

	addressLife        = 7 * 24 * time.Hour
	addressFailureLife = 24 * time.Hour
	addressPause       = 10 * time.Minute // between looks into the store while a check is under way
)

// What is known about an actor's address.
const (
	addressConfirmed = "confirmed" // WebFinger of the address names this actor
	addressUnchecked = "unchecked" // not asked yet: user name and host of the actor's id
	addressFailed    = "failed"    // asked, and the answer does not name this actor
)

// checkedAddress is the result of the WebFinger loop.
type checkedAddress struct {
	Address string `json:"address"` // @user@domain
	Status  string `json:"status"`
	// MovedFrom is the account from which this one came, as both said; evidence that gives nothing.
	MovedFrom string `json:"moved_from,omitempty"`
}

// address gives the sender's address without waiting for the network. The first message of an actor starts a check
// as a durable job; until it is done the user name and the host of the actor's id stand in, and the evidence says so.
func (l *lookup) address(ctx context.Context, actor *remoteActor) checkedAddress {
	now := l.a.now()
	if known, found := l.addresses.get(actor.ID, now); found {
		return known
	}
	value, found, err := l.a.options.State.Get(ctx, addressNamespace, actor.ID)
	var known checkedAddress
	if found && json.Unmarshal(value, &known) == nil && known.Address != "" {
		l.addresses.put(actor.ID, known, now.Add(addressPause))
		return known
	}
	known = checkedAddress{Address: ownAddress(actor), Status: addressUnchecked}
	if err == nil && l.a.scheduleCheck(ctx, actor.ID) == nil {
		l.addresses.put(actor.ID, known, now.Add(addressPause))
	}
	return known
}

// ownAddress is @preferredUsername@host-of-the-id, or a name made from the id where that is no address.
func ownAddress(actor *remoteActor) string {
	host := hostOf(actor.ID)
	if address, err := identity.ParseAddress(actor.Username + "@" + host); err == nil {
		return address.String()
	}
	last := actor.ID[strings.LastIndexByte(actor.ID, '/')+1:]
	if address, err := identity.ParseAddress(last + "@" + host); err == nil {
		return address.String()
	}
	return "@unknown@" + host
}

// checkAddress does the loop for one actor and stores the result. It is the body of a job.
func (a *Adapter) checkAddress(ctx context.Context, actorIRI string) error {
	actor, found := a.remote.storedActor(ctx, actorIRI)
	if !found {
		return nil // forgotten since
	}
	result, life := checkedAddress{Address: ownAddress(actor), Status: addressFailed}, addressFailureLife
	if confirmed, err := a.confirmAddress(ctx, actor); err == nil {
		result, life = checkedAddress{Address: confirmed, Status: addressConfirmed}, addressLife
	} else if ctx.Err() != nil {
		return ctx.Err()
	}
	var err error
	if result.MovedFrom, err = a.movedFrom(ctx, actorIRI); err != nil {
		return fmt.Errorf("read moved account: %w", err)
	}
	value, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode address: %w", err)
	}
	if err := a.options.State.Put(ctx, addressNamespace, actorIRI, value, a.now().Add(life)); err != nil {
		return fmt.Errorf("store address: %w", err)
	}
	a.remote.addresses.drop(actorIRI)
	return nil
}

// confirmAddress asks WebFinger for the claimed address; where the answer's subject is another one, that is asked
// once more and must be stable. Its self link must be the actor's id, byte for byte.
func (a *Adapter) confirmAddress(ctx context.Context, actor *remoteActor) (string, error) {
	claimed, err := identity.ParseAddress(actor.Username + "@" + hostOf(actor.ID))
	if hinted, hintErr := identity.ParseAddress(actor.WebFinger); hintErr == nil {
		claimed, err = hinted, nil
	}
	if err != nil {
		return "", err
	}
	for range 2 {
		subject, self, err := a.webfinger(ctx, claimed)
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

// webfinger resolves an address (RFC 7033) to its subject and the actor it names.
func (a *Adapter) webfinger(ctx context.Context, address identity.Address) (subject identity.Address, self string, err error) {
	scheme := "https"
	if a.options.AllowPrivate && (strings.Contains(address.Domain, ":") || strings.HasPrefix(a.base, "http:")) {
		scheme = "http"
	}
	target := scheme + "://" + address.Domain + "/.well-known/webfinger?resource=" + url.QueryEscape(address.Acct())
	response, err := a.options.Client.Get(ctx, target, safehttp.GetOptions{
		Accept: "application/jrd+json, application/json", MaxBytes: 256 << 10, MaxRedirects: 2,
	})
	if err != nil {
		return subject, "", fmt.Errorf("webfinger %s: %w", address, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return subject, "", fmt.Errorf("webfinger %s: %s", address, response.Status)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return subject, "", fmt.Errorf("webfinger %s: %w", address, err)
	}
	return readResource(body)
}

// readResource reads a JSON resource descriptor.
func readResource(body []byte) (subject identity.Address, self string, err error) {
	doc, err := parseObject(body)
	if err != nil {
		return subject, "", err
	}
	subject, err = identity.ParseAddress(str(doc, "subject"))
	if err != nil {
		return subject, "", err
	}
	for _, entry := range listed(doc["links"]) {
		link, _ := entry.(object)
		if str(link, "rel") == "self" && isActivityType(str(link, "type"), true) {
			return subject, str(link, "href"), nil
		}
	}
	return subject, "", errors.New("webfinger has no link to an actor")
}
