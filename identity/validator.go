package identity

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Replays remembers what was used. Once reports whether key is new, and keeps it at least until expires; two callers with
// the same key must not both hear true.
type Replays interface {
	Once(ctx context.Context, key string, expires time.Time) (bool, error)
}

// ValidatorOptions are what a Validator needs. Documents and Replays are required.
type ValidatorOptions struct {
	Trust     []TrustedIssuer
	Documents Documents
	Replays   Replays
	OwnIssuer string           // our domain: evidence that names it, or its did:web, never comes from a peer; empty = not checked
	AllowHTTP bool             // development: key documents of issuers with a port are fetched over plain http
	Now       func() time.Time // nil = time.Now
}

// Recipient is the agent that a message is for.
type Recipient struct {
	Address string // canonical, @agent@domain
	CardURL string // of its card; may be empty
}

// Offered is what came with one message, as it was received.
type Offered struct {
	Evidence    []json.RawMessage
	Credentials []json.RawMessage
	Challenge   string // A2A messageId, which a credential must carry
}

// Belief is what of it may be relied on, and why the rest may not. Evidence authorizes; credentials are context for
// presentation and never make a principal.
type Belief struct {
	Evidence    []Evidence
	Credentials []Credential
	Rejected    []Rejection
}

// Limits of time (message contract, section 10).
const (
	MaxAttestationLife = 10 * time.Minute
	clockSkew          = time.Minute
	believeTimeout     = 15 * time.Second // for all pieces of a message, key documents included
)

// Validator decides what evidence from peers is believed. It is safe for concurrent use and keeps key documents of
// trusted issuers, 256 at most, for ten minutes.
type Validator struct {
	trust   trustList
	own     map[string]bool
	keys    *keyCache
	replays Replays
	now     func() time.Time
}

// NewValidator checks the trust list and returns the validator. It fetches nothing.
func NewValidator(options ValidatorOptions) (*Validator, error) {
	if options.Documents == nil || options.Replays == nil {
		return nil, errors.New("a validator needs Documents and Replays")
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	trust, err := newTrustList(options.Trust)
	if err != nil {
		return nil, err
	}
	own, err := ownIssuers(options.OwnIssuer)
	if err != nil {
		return nil, err
	}
	keys := &keyCache{
		documents: options.Documents, now: options.Now, allowHTTP: options.AllowHTTP, issuers: map[string]*issuerKeys{},
	}
	return &Validator{trust: trust, own: own, keys: keys, replays: options.Replays, now: options.Now}, nil
}

// ownIssuers returns both names of this server: host and did:web.
func ownIssuers(text string) (map[string]bool, error) {
	if text == "" {
		return nil, nil
	}
	issuer, err := CanonicalIssuer(text)
	if err != nil {
		return nil, err
	}
	return map[string]bool{issuer: true, didOf(issuer): true}, nil
}

// Believe checks everything that came with a message. What fails a step is dropped with a reason, and the message goes
// on without it; it takes 15 seconds at most. Issuers of believed evidence are in canonical form.
func (v *Validator) Believe(ctx context.Context, offered Offered, recipient Recipient) Belief {
	ctx, cancel := context.WithTimeout(ctx, believeTimeout)
	defer cancel()
	var belief Belief
	v.believeEvidence(ctx, offered.Evidence, recipient, &belief)
	v.believeCredentials(ctx, offered, recipient, &belief)
	return belief
}

func (v *Validator) believeEvidence(ctx context.Context, pieces []json.RawMessage, recipient Recipient, belief *Belief) {
	if len(pieces) > MaxEvidence || totalBytes(pieces) > MaxEvidenceTotalBytes {
		belief.Rejected = append(belief.Rejected, refuse(CodeLimitExceeded, "").rejection("", "", ""))
		return
	}
	for _, raw := range pieces {
		c := &candidate{raw: raw, recipient: recipient}
		if refused := v.validate(ctx, c); refused != nil {
			e := &c.evidence
			belief.Rejected = append(belief.Rejected, refused.rejection(e.Issuer, e.Subject, e.Method))
			continue
		}
		c.evidence.Issuer = c.issuer
		belief.Evidence = append(belief.Evidence, c.evidence)
	}
}

func totalBytes(pieces []json.RawMessage) int {
	total := 0
	for _, piece := range pieces {
		total += len(piece)
	}
	return total
}
