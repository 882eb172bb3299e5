package webtoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"inbox/internal/fault"
)

// fromIssuer checks a token of a configured issuer. What costs nothing comes first, keys are looked up when only the
// signature is open, and nothing is written down before it is checked.
func (v *Verifier) fromIssuer(ctx context.Context, shown Presented, t *token, issuer Issuer) (Claims, error) {
	if err := v.issued(shown, t, issuer); err != nil {
		return Claims{}, refused("the token is not valid here: "+err.Error(), err)
	}

	key, found, err := v.configured.find(ctx, shown.Source, issuer.Issuer, t.header.Kid)
	switch {
	case err != nil:
		return Claims{}, fault.Wrap(fault.Unavailable, "the token cannot be checked right now", fmt.Errorf("keys of %s: %w", issuer.Issuer, err))
	case !found:
		return Claims{}, refused("the token is not valid here: its issuer has no such key", nil)
	}

	if err := t.verify(key, issuer.Algs); err != nil {
		return Claims{}, refused("the token is not valid here: "+err.Error(), err)
	}
	if err := v.possessed(ctx, shown, t); err != nil {
		return Claims{}, err
	}
	if err := v.used(ctx, t, issuer.oneTime()); err != nil {
		return Claims{}, err
	}

	c := &t.claims
	scopes, limited := c.scopes()
	return Claims{
		Issuer: c.Issuer, Subject: c.Subject, ClientID: c.ClientID, Method: issuer.Method, Scopes: scopes,
		Unscoped: !limited && (issuer.Unscoped || issuer.oneTime()), TokenID: c.ID, KeyID: t.header.Kid, ExpiresAt: c.ExpiresAt.Time,
	}, nil
}

// issued is what can be seen without a key (RFC 9068, section 4).
func (v *Verifier) issued(shown Presented, t *token, issuer Issuer) error {
	c := &t.claims
	switch {
	case !slices.Contains(issuer.Algs, t.header.Alg):
		return fmt.Errorf("algorithm %q is not accepted", t.header.Alg)
	case t.header.Kid == "":
		return errors.New("kid is missing")
	case c.Subject == "":
		return errors.New("sub is missing")
	case !v.addressed(shown, c.Audience, issuer.Audiences, issuer.oneTime()):
		return errors.New("aud does not name this agent")
	case c.Nonce != nil:
		return errors.New("it is an ID token and none for access")
	}

	if issuer.oneTime() {
		if c.ID == "" {
			return errors.New("jti is missing")
		}
		return v.times(c, MaxOneTimeLife)
	}

	switch {
	case !issuer.Untyped && !t.typed("at+jwt"):
		return errors.New("typ is not at+jwt")
	case !issuer.Untyped && c.ClientID == "":
		return errors.New("client_id is missing")
	case !issuer.Untyped && c.ID == "":
		return errors.New("jti is missing")
	}

	return v.times(c, MaxAccessLife)
}

// addressed reports whether aud names the agent, or a name that the operator configured for this server; names are compared exactly.
// A configured name of another agent opens that one only. An access token may be for others, too (RFC 9068, section 4). A token that
// is good for one request must be for no one else (sole): another party that it names could show it here first (RFC 7523, section 3).
func (v *Verifier) addressed(shown Presented, aud audience, configured []string, sole bool) bool {
	foreign := func(name string) bool {
		return name == "" || !slices.Contains(shown.Audiences, name) &&
			(!slices.Contains(configured, name) || shown.Foreign != nil && shown.Foreign(name))
	}
	ours := func(name string) bool { return !foreign(name) }
	return slices.ContainsFunc(aud, ours) && (!sole || !slices.ContainsFunc(aud, foreign))
}

// used refuses the second use of a token that is good for one.
func (v *Verifier) used(ctx context.Context, t *token, oneTime bool) error {
	if !oneTime {
		return nil
	}

	first, err := v.once(ctx, "jwt", t.claims.Issuer, t.claims.ID, t.claims.ExpiresAt.Add(Skew))
	switch {
	case err != nil:
		return err
	case !first:
		return refused("the token is not valid here: it was used before", nil)
	}
	return nil
}

// fetchConfigured reads the keys of a configured issuer, by its metadata where the operator named that.
func (v *Verifier) fetchConfigured(ctx context.Context, name string) (map[string]publicKey, error) {
	issuer := v.issuers[name]
	address := issuer.JWKSURL
	if address == "" {
		body, err := v.options.Documents.Fetch(ctx, issuer.Discovery)
		if err != nil {
			return nil, err
		}

		var metadata struct {
			Issuer  string `json:"issuer"`
			JWKSURI string `json:"jwks_uri"`
		}
		switch err := json.Unmarshal(body, &metadata); {
		case err != nil:
			return nil, errors.New("the metadata cannot be read")
		case metadata.Issuer != issuer.Issuer: // RFC 8414, section 3.3
			return nil, fmt.Errorf("the metadata is of the issuer %q", metadata.Issuer)
		case !sameStrength(issuer.Discovery, metadata.JWKSURI):
			return nil, errors.New("jwks_uri is missing or leads away from https")
		}

		address = metadata.JWKSURI
	}

	body, err := v.options.Documents.Fetch(ctx, address)
	if err != nil {
		return nil, err
	}

	return readKeys(body)
}
