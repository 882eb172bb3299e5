package operator

import (
	"context"
	"slices"
	"strings"
	"time"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
)

// Belonging is a principal with the reason why it belongs to a person.
type Belonging = store.Belonging

// Statement is a principal that states an address of a person and is left out.
type Statement = store.Statement

// Reasons of a Belonging.
const (
	BecauseEvidence = store.BecauseEvidence
	BecauseLink     = store.BecauseLink
	BecauseUnproven = store.BecauseUnproven
)

// Reasons why a principal that states an address is not the person.
const (
	OtherSender   = store.OtherSender
	OtherCapitals = store.OtherCapitals
)

// PersonName says who is meant, for an export or an erasure.
type PersonName struct {
	Name     string // an address, an account, a principal, or the id of a link
	Linked   bool   // with what linked principals said to the agent of a link in force
	Unproven bool   // with messages without proof that state exactly the address
}

// Who finds the principals of a person who is called by an address (@user@domain, user@domain), an account (https://…, mailto:…, token:…), a
// principal as messages show it, or the id of a link, which means both sides for the agent of the link. A principal belongs to the person because the
// operator named it or because its evidence vouches for the address; an address that a sender only states brings in no one. fault.Malformed for what is
// no such name.
func (e Erasures) Who(ctx context.Context, who PersonName) (store.Person, error) {
	query, err := e.query(ctx, strings.TrimSpace(who.Name))
	if err != nil {
		return store.Person{}, err
	}
	query.Linked, query.Unproven, query.Believed = who.Linked, who.Unproven, Believed(e.current())
	return e.store.FindPerson(ctx, query)
}

// Believed returns what says whether the issuer that proved a side of a link is still trusted.
func Believed(settings *config.Config) func(side exchange.LinkSide) bool {
	trusted, now := settings.TrustedIssuers(), time.Now()
	return func(side exchange.LinkSide) bool {
		if !identity.Believes(trusted, settings.Domain, side.Issuer, side.Method, side.Subject, now) {
			return false
		}
		// The subject of a signed token begins with the configured issuer and "#"; an actor's may have a # of its own.
		issuer, _, is := strings.Cut(side.Subject, "#")
		actor := side.Method == identity.MethodActivityPubSignature || side.Method == identity.MethodActivityPubProof
		return !is || actor || side.Issuer != settings.Domain ||
			slices.ContainsFunc(settings.A2A.Issuers, func(one config.Issuer) bool { return one.Issuer == issuer })
	}
}

func (e Erasures) query(ctx context.Context, name string) (query store.PersonQuery, err error) {
	mail, isMail := strings.CutPrefix(name, "mailto:")
	switch {
	case name == "" || len(name) > 2048 || strings.ContainsAny(name, "\x00\n\r"):
		return query, fault.New(fault.Malformed, "write a person's address, account or principal, as inbox show or inbox people list have it")
	case strings.Contains(name, " "):
		query.Principals = []string{name}
	case strings.HasPrefix(name, "https://"), strings.HasPrefix(name, "http://"):
		host, _, _ := strings.Cut(name[strings.Index(name, "://")+3:], "/")
		query.Principals = []string{e.domain + " " + name, strings.ToLower(host) + " " + name}
	case strings.HasPrefix(name, "token:"):
		query.Principals = []string{e.domain + " " + name}
	case strings.Contains(mail, "@"):
		address, err := identity.ParseAddress(mail)
		if err != nil || !isMail && mail != name {
			return query, fault.Newf(fault.Malformed, "%q is not an address; write one such as @user@example.com", name)
		}
		query.Address = identity.ProvenAddress(address.String()) // by the operator's word
		query.Principals = []string{store.MailPrincipal(e.domain, query.Address)}
	case len(name) == 36:
		query.Link, err = e.link(ctx, name)
	default:
		err = fault.Newf(fault.Malformed, "%q is neither an address nor a principal; write one such as @user@example.com", name)
	}
	return query, err
}

// link returns the link with the id.
func (e Erasures) link(ctx context.Context, id string) (found *exchange.PersonLink, err error) {
	err = People{Rows: e.store}.each(ctx, func(link *exchange.PersonLink) {
		if link.ID == id {
			found = link
		}
	})
	if err == nil && found == nil {
		err = fault.Newf(fault.NotFound, "no link has the id %q; see: inbox people list", id)
	}
	return found, err
}

// Preview says who a name means and why, how many messages are theirs, and what is left out. Nothing is changed.
func (e Erasures) Preview(ctx context.Context, who PersonName) (ErasurePreview, error) {
	person, err := e.Who(ctx, who)
	if err != nil {
		return ErasurePreview{}, err
	}
	preview := ErasurePreview{Person: person}
	err = e.store.PersonTurns(ctx, person.Names, "", "", func(string) error {
		preview.Messages++
		return nil
	})
	return preview, err
}

// ErasurePreview is what an export or an erasure would take, and of whom.
type ErasurePreview struct {
	store.Person

	Messages int `json:"messages"`
}
