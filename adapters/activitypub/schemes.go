package activitypub

import (
	"context"
	"encoding/json"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
)

const (
	schemeNamespace = "activitypub.scheme" // host → knownScheme
	schemeLife      = 30 * 24 * time.Hour  // then draft-cavage is tried first again
	schemeLook      = time.Hour            // between looks into the store for a host without a row
)

// knownScheme is the signature scheme that a host took last.
type knownScheme struct {
	Scheme string `json:"scheme"`

	// What it asked to have covered, for RFC 9421; empty = our own choice.
	Label      string   `json:"label,omitempty"`
	Components []string `json:"components,omitempty"`
}

func otherScheme(scheme string) string {
	if scheme == signature.Cavage {
		return signature.RFC9421
	}
	return signature.Cavage
}

// schemeOf gives the scheme that a host is known to take; without Scheme when nothing is known. The store only helps to guess
// right the first time, so its failures are not failures of the delivery.
func (t *transport) schemeOf(ctx context.Context, host string) knownScheme {
	if known, found := t.schemes.get(host, t.now()); found {
		return known
	}
	var known knownScheme
	value, found, err := t.options.State.Get(ctx, schemeNamespace, host)
	if err != nil {
		return known
	}
	if found && json.Unmarshal(value, &known) == nil && (known.Scheme == signature.Cavage || known.Scheme == signature.RFC9421) {
		t.schemes.put(host, known, t.now().Add(schemeLook))
		return known
	}
	return knownScheme{}
}

// rememberScheme keeps what a host took. draft-cavage needs no row: it is tried first wherever nothing is known.
func (t *transport) rememberScheme(ctx context.Context, host string, known knownScheme) {
	t.schemes.put(host, known, t.now().Add(schemeLook))
	if known.Scheme == signature.Cavage {
		return
	}
	if value, err := json.Marshal(known); err == nil {
		_ = t.options.State.Put(ctx, schemeNamespace, host, value, t.now().Add(schemeLife))
	}
}

func (t *transport) forgetScheme(ctx context.Context, host string) {
	t.schemes.drop(host)
	_ = t.options.State.Delete(ctx, schemeNamespace, host)
}

// heard tells of a host that sent something with a good signature: it lives.
func (v *verifier) heard(ctx context.Context, by proven) {
	if v.options.Alive != nil && by.actor != nil && by.relay == "" {
		v.options.Alive(ctx, document.HostOf(by.actor.ID))
	}
}
