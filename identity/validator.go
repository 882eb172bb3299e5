package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	Caller      string // who offers it: fetches for keys that an issuer does not list count for them
}

// Validation is what of it may be relied on, and why the rest may not. Evidence authorizes; credentials are context for
// presentation and never make a principal.
type Validation struct {
	Evidence    []Evidence
	Credentials []Credential
	Rejected    []Rejection
}

// Limits of time (message contract, section 10).
const (
	MaxAttestationLife = 10 * time.Minute
	clockSkew          = time.Minute
	validationTimeout  = 15 * time.Second // for all pieces of a message, key documents included
)

// Validator decides which evidence from peers is accepted. It is safe for concurrent use and keeps key documents of
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

// Validate checks everything that came with a message. What fails a step is dropped with a reason, and the message goes
// on without it; it takes 15 seconds at most. Issuers of accepted evidence are in canonical form.
func (v *Validator) Validate(ctx context.Context, offered Offered, recipient Recipient) Validation {
	ctx, cancel := context.WithTimeout(ctx, validationTimeout)
	defer cancel()
	var validation Validation
	v.validateEvidence(ctx, offered, recipient, &validation)
	v.validateCredentials(ctx, offered, recipient, &validation)
	return validation
}

func (v *Validator) validateEvidence(ctx context.Context, offered Offered, recipient Recipient, validation *Validation) {
	pieces := offered.Evidence
	if len(pieces) > MaxEvidence || totalBytes(pieces) > MaxEvidenceTotalBytes {
		validation.Rejected = append(validation.Rejected, refuse(CodeLimitExceeded, "").rejection("", "", ""))
		return
	}
	for _, raw := range pieces {
		c := &candidate{raw: raw, recipient: recipient, caller: offered.Caller}
		if refused := v.validate(ctx, c); refused != nil {
			e := &c.evidence
			validation.Rejected = append(validation.Rejected, refused.rejection(e.Issuer, e.Subject, e.Method))
			continue
		}
		c.evidence.Issuer = c.issuer
		validation.Evidence = append(validation.Evidence, c.evidence)
	}
}

func totalBytes(pieces []json.RawMessage) int {
	total := 0
	for _, piece := range pieces {
		total += len(piece)
	}
	return total
}

// TrustedIssuer is the operator's word that an issuer may be relied on, and for what (message contract, section 10).
// Several entries may name one issuer; a piece of evidence must be covered by one of them alone.
type TrustedIssuer struct {
	Issuer          string    // see CanonicalIssuer
	Methods         []string  // accepted methods, compared whole
	Assurance       []string  // accepted assurance levels, compared whole
	SubjectPrefixes []string  // compared literally; each ends at a separator: / : # ? = or @
	AllowDelegated  bool      // on_behalf_of of this issuer is accepted
	Expires         time.Time // the entry counts until then; zero = always
}

var errNothingTrusted = errors.New("nothing is trusted")

// Validate returns the first mistake of the entry. An empty list would trust nothing, so that it is one.
func (t TrustedIssuer) Validate() error {
	if _, err := CanonicalIssuer(t.Issuer); err != nil {
		return err
	}

	for _, list := range []struct {
		name    string
		entries []string
	}{{"methods", t.Methods}, {"assurance", t.Assurance}, {"subject_prefixes", t.SubjectPrefixes}} {
		if len(list.entries) == 0 {
			return fmt.Errorf("%s is empty: %w", list.name, errNothingTrusted)
		}
		for _, entry := range list.entries {
			if found := token(list.name, entry, maxIRIBytes, true); found != nil {
				return found
			}
		}
	}

	return checkPrefixes(t.SubjectPrefixes)
}

func checkPrefixes(prefixes []string) error {
	for _, prefix := range prefixes {
		if !endsAtSeparator(prefix) {
			return fmt.Errorf("subject_prefixes: %q must end at a separator (one of / : # ? = @), or it covers longer names, too", prefix)
		}
	}
	return nil
}

// endsAtSeparator reports whether a prefix ends where a name ends: slack:T1 would also cover slack:T12.
func endsAtSeparator(prefix string) bool {
	return prefix != "" && strings.IndexByte("/:#?=@", prefix[len(prefix)-1]) >= 0
}

func (t TrustedIssuer) inForce(now time.Time) bool {
	return t.Expires.IsZero() || now.Before(t.Expires)
}

// coversSubject is what a credential needs: it has no assurance.
func (t TrustedIssuer) coversSubject(method, subject string) bool {
	return slices.Contains(t.Methods, method) &&
		slices.ContainsFunc(t.SubjectPrefixes, func(prefix string) bool { return strings.HasPrefix(subject, prefix) })
}

func (t TrustedIssuer) covers(e *Evidence) bool {
	return t.coversSubject(e.Method, e.Subject) && slices.Contains(t.Assurance, e.Assurance)
}

// trustList holds the entries by canonical issuer.
type trustList map[string][]TrustedIssuer

func newTrustList(entries []TrustedIssuer) (trustList, error) {
	list := trustList{}
	for i, entry := range entries {
		if err := entry.Validate(); err != nil {
			return nil, fmt.Errorf("trust entry %d (%s): %w", i+1, entry.Issuer, err)
		}
		issuer, err := CanonicalIssuer(entry.Issuer)
		if err != nil {
			return nil, err
		}
		list[issuer] = append(list[issuer], entry)
	}
	return list, nil
}

// of returns the entries in force for a canonical issuer.
func (l trustList) of(issuer string, now time.Time) []TrustedIssuer {
	var found []TrustedIssuer
	for _, entry := range l[issuer] {
		if entry.inForce(now) {
			found = append(found, entry)
		}
	}
	return found
}

// Covers reports whether the operator's list lets an issuer vouch for what the evidence says. It checks no proof: it is for
// evidence that this server makes itself, about a person named by a connector that proved itself in another way.
func (v *Validator) Covers(evidence Evidence) bool {
	issuer, err := CanonicalIssuer(evidence.Issuer)
	return err == nil && !v.own[issuer] && slices.ContainsFunc(v.trust.of(issuer, v.now()), func(entry TrustedIssuer) bool {
		return entry.covers(&evidence) && (len(evidence.OnBehalfOf) == 0 || entry.AllowDelegated)
	})
}

// Believes reports whether the operator's list in force at the time lets an issuer vouch for a subject by a method. What own,
// this server's own domain, vouches for is believed. It checks no proof: it is for what was proven earlier and is relied on now.
func Believes(entries []TrustedIssuer, own, issuer, method, subject string, now time.Time) bool {
	canonical, err := CanonicalIssuer(issuer)
	if err != nil {
		return false
	}
	if ours, err := ownIssuers(own); err == nil && ours[canonical] {
		return true
	}

	return slices.ContainsFunc(entries, func(entry TrustedIssuer) bool {
		named, err := CanonicalIssuer(entry.Issuer)
		return err == nil && named == canonical && entry.inForce(now) && entry.coversSubject(method, subject)
	})
}

// Rejection tells why a piece of evidence was not accepted. The message goes on without it.
type Rejection struct {
	Code    string `json:"code"`   // evidence:… or credential:…
	Reason  string `json:"reason"` // one line for the operator, without secrets
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Method  string `json:"method,omitempty"`
}

// Codes of a Rejection of evidence, in the order of the steps (message contract, section 10).
const (
	CodeMalformed            = "evidence:malformed"
	CodeLimitExceeded        = "evidence:limit_exceeded"
	CodeOwnProofFromPeer     = "evidence:own_proof_from_peer"
	CodeSelfIssued           = "evidence:self_issued"
	CodeUntrustedIssuer      = "evidence:untrusted_issuer"
	CodeWrongAudience        = "evidence:wrong_audience"
	CodeNotYetValid          = "evidence:not_yet_valid"
	CodeExpired              = "evidence:expired"
	CodeLifetimeExceeded     = "evidence:lifetime_exceeded"
	CodeUnsupportedAlgorithm = "evidence:unsupported_algorithm"
	CodeKeyFetchFailed       = "evidence:key_fetch_failed"
	CodeControllerMismatch   = "evidence:controller_mismatch"
	CodeUnknownKey           = "evidence:unknown_key"
	CodeKeyRetired           = "evidence:key_retired"
	CodeWrongKeyPurpose      = "evidence:wrong_key_purpose"
	CodeInvalidSignature     = "evidence:invalid_signature"
	CodeNotCovered           = "evidence:not_covered"
	CodeDelegation           = "evidence:delegation_not_allowed"
	CodeReplayStoreFailed    = "evidence:replay_store_failed"
	CodeReplayed             = "evidence:replayed"
	CodeAmbiguous            = "evidence:ambiguous"     // valid pieces are about several people
	CodeNotAddressed         = "evidence:not_addressed" // it proves who wrote the message and not that it was meant for this agent
)

// Codes of a Rejection of a verifiable credential: the fifteen of the profile v0.2 (message contract, section 10).
//
//nolint:gosec // names of codes hold no secret
const (
	CodeCredentialMalformed          = "credential:malformed"
	CodeCredentialLimitExceeded      = "credential:limit_exceeded"
	CodeCredentialProfile            = "credential:unsupported_profile"
	CodeCredentialIssuerMethod       = "credential:unsupported_issuer_method"
	CodeCredentialUntrustedIssuer    = "credential:untrusted_issuer"
	CodeCredentialKeyFetchFailed     = "credential:key_fetch_failed"
	CodeCredentialControllerMismatch = "credential:issuer_controller_mismatch"
	CodeCredentialCryptosuite        = "credential:unsupported_cryptosuite"
	CodeCredentialInvalidSignature   = "credential:invalid_signature"
	CodeCredentialDomainMismatch     = "credential:domain_mismatch"
	CodeCredentialChallengeMismatch  = "credential:challenge_mismatch"
	CodeCredentialNotYetValid        = "credential:not_yet_valid"
	CodeCredentialExpired            = "credential:expired"
	CodeCredentialReplayStoreFailed  = "credential:replay_store_failed"
	CodeCredentialReplayed           = "credential:replayed"
)

// meanings says for each code what was found, as far as the operator can do something about it.
//
//nolint:gosec // names of codes hold no secret
var meanings = map[string]string{
	CodeMalformed:            "not evidence as the contract writes it",
	CodeLimitExceeded:        "over 16 pieces, 32 KiB each or 64 KiB together; all pieces over a common limit are dropped",
	CodeOwnProofFromPeer:     "a transport or bearer proof is made inside a server and proves nothing when it comes from a peer",
	CodeSelfIssued:           "names this server as issuer; what we verified ourselves never comes from a peer",
	CodeUntrustedIssuer:      "no [[trust]] entry in force names this issuer",
	CodeWrongAudience:        "made for another recipient",
	CodeNotYetValid:          "begins in the future; the issuer's clock may be wrong",
	CodeExpired:              "has ended",
	CodeLifetimeExceeded:     "lasts longer than 10 minutes",
	CodeUnsupportedAlgorithm: "not EdDSA with Ed25519 over RFC 8785",
	CodeKeyFetchFailed:       "the issuer's key document could not be had",
	CodeControllerMismatch:   "the key or its document does not belong to the issuer",
	CodeUnknownKey:           "the issuer publishes no such key",
	CodeKeyRetired:           "the issuer took the key out of rotation",
	CodeWrongKeyPurpose:      "the issuer publishes the key for other purposes than assertions",
	CodeInvalidSignature:     "the signature does not fit what was received",
	CodeNotCovered:           "the [[trust]] entries of the issuer do not cover method, assurance and subject",
	CodeDelegation:           "names on_behalf_of, and no [[trust]] entry that covers it has allow_delegated",
	CodeReplayStoreFailed:    "whether it was used before could not be found out",
	CodeReplayed:             "was used before",

	CodeCredentialMalformed:          "not a credential as the profile writes it",
	CodeCredentialLimitExceeded:      "over 4 credentials, 32 KiB each, 64 KiB together, the length of a text or 10 minutes",
	CodeCredentialProfile:            "contexts, types or status are not those of identity v0.2",
	CodeCredentialIssuerMethod:       "the issuer is no did:web",
	CodeCredentialUntrustedIssuer:    "no [[trust]] entry in force covers issuer, method and subject",
	CodeCredentialKeyFetchFailed:     "the issuer's key could not be had or is out of rotation",
	CodeCredentialControllerMismatch: "the key is not the issuer's or not for assertions",
	CodeCredentialCryptosuite:        "not a DataIntegrityProof with eddsa-jcs-2022 for assertionMethod",
	CodeCredentialInvalidSignature:   "the signature does not fit what was received",
	CodeCredentialDomainMismatch:     "made for another agent",
	CodeCredentialChallengeMismatch:  "made for another message",
	CodeCredentialNotYetValid:        "begins in the future; the issuer's clock may be wrong",
	CodeCredentialExpired:            "has ended",
	CodeCredentialReplayStoreFailed:  "whether it was used before could not be found out",
	CodeCredentialReplayed:           "was used before",
}

// refusal is a step that failed: the code and what exactly was found.
type refusal struct{ code, detail string }

func (r *refusal) Error() string { return r.code + ": " + r.detail }

func refuse(code, detail string) *refusal { return &refusal{code: code, detail: detail} }

const maxReasonBytes = 400

// rejection is written for the operator: the meaning of the code, then what was found.
func (r *refusal) rejection(issuer, subject, method string) Rejection {
	reason := meanings[r.code]
	if r.detail != "" {
		reason += ": " + printable(r.detail)
	}
	return Rejection{Code: r.code, Reason: reason, Issuer: issuer, Subject: subject, Method: method}
}

// printable cuts a text that may quote a peer down to one short line.
func printable(text string) string {
	if len(text) > maxReasonBytes {
		text = text[:maxReasonBytes]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '\u007f' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
