package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// candidate is one piece of evidence on its way through the steps.
type candidate struct {
	raw       []byte
	recipient Recipient
	caller    string

	canonical []byte
	evidence  Evidence
	issuer    string          // canonical
	entries   []TrustedIssuer // in force when the steps began
	key       ed25519.PublicKey
}

// steps are the ten of the message contract, section 10, in their order. Nothing is fetched before the sixth and nothing
// is written down before the ninth.
var steps = [...]func(*Validator, context.Context, *candidate) *refusal{
	(*Validator).checkShape,     // 1
	(*Validator).checkOrigin,    // 2
	(*Validator).checkTrust,     // 3
	(*Validator).checkAudience,  // 4
	(*Validator).checkTimes,     // 5
	(*Validator).checkKey,       // 6
	(*Validator).checkSignature, // 7
	(*Validator).checkCover,     // 8
	(*Validator).checkReplay,    // 9
	(*Validator).checkStillGood, // 10
}

func (v *Validator) validate(ctx context.Context, c *candidate) *refusal {
	for _, step := range steps {
		if refused := step(v, ctx, c); refused != nil {
			return refused
		}
	}
	return nil
}

var (
	proofNames  = []string{"type", "verified_by", "key_id", "alg", "kid", "value", "canonicalization", "token_id"}
	sourceNames = []string{"transport", "transport_module", "connector", "channel"}
)

func (v *Validator) checkShape(_ context.Context, c *candidate) *refusal {
	if len(c.raw) > MaxEvidenceBytes {
		return refuse(CodeLimitExceeded, "")
	}

	canonical, err := canonicalObject(c.raw)
	if err != nil {
		return refuse(CodeMalformed, err.Error())
	}

	read, err := readEvidence(canonical)
	if err != nil {
		return refuse(CodeMalformed, err.Error())
	}

	if found := read.CheckShape(); found != nil && found.TooLarge {
		return refuse(CodeLimitExceeded, "")
	} else if found != nil {
		return refuse(CodeMalformed, found.Error())
	}

	c.canonical, c.evidence = canonical, read
	return nil
}

// readEvidence reads a canonical object; no name may be written in another case at any depth that we read.
func readEvidence(canonical []byte) (Evidence, error) {
	var read Evidence
	if err := decodeExact(canonical, &read, evidenceKeys...); err != nil {
		return Evidence{}, err
	}

	var inner struct {
		Proof  json.RawMessage `json:"proof"`
		Source json.RawMessage `json:"source"`
	}

	if err := decodeExact(canonical, &inner); err != nil {
		return Evidence{}, err
	}
	if err := decodeExact(inner.Proof, &read.Proof, proofNames...); err != nil {
		return Evidence{}, fmt.Errorf("proof: %w", err)
	}
	if read.Source == nil {
		return read, nil
	}
	if err := decodeExact(inner.Source, read.Source, sourceNames...); err != nil {
		return Evidence{}, fmt.Errorf("source: %w", err)
	}

	return read, nil
}

func (v *Validator) checkOrigin(_ context.Context, c *candidate) *refusal {
	if c.evidence.Proof.Type != ProofSignedAttestation {
		return refuse(CodeOwnProofFromPeer, c.evidence.Proof.Type)
	}
	c.issuer, _ = CanonicalIssuer(c.evidence.Issuer) // of a strange form it is empty, which no entry trusts
	if v.own[c.issuer] {
		return refuse(CodeSelfIssued, "")
	}
	return nil
}

func (v *Validator) checkTrust(_ context.Context, c *candidate) *refusal {
	if c.entries = v.trust.of(c.issuer, v.now()); len(c.entries) == 0 {
		return refuse(CodeUntrustedIssuer, "")
	}
	return nil
}

func (v *Validator) checkAudience(_ context.Context, c *candidate) *refusal {
	for _, audience := range c.evidence.Audience {
		if audience == c.recipient.Address || audience == c.recipient.CardURL {
			return nil
		}
	}
	return refuse(CodeWrongAudience, strings.Join(c.evidence.Audience, ", "))
}

func (v *Validator) checkTimes(_ context.Context, c *candidate) *refusal {
	e, latest := &c.evidence, v.now().Add(clockSkew)
	switch {
	case e.IssuedAt.After(latest), e.NotBefore != nil && e.NotBefore.After(latest):
		return refuse(CodeNotYetValid, "")
	case c.ended(v.now()):
		return refuse(CodeExpired, e.ExpiresAt.Format(timeFormat))
	case e.ExpiresAt.Sub(e.IssuedAt.Time) > MaxAttestationLife:
		return refuse(CodeLifetimeExceeded, "")
	}
	return nil
}

// ended reports whether the evidence is over, the skew of clocks included.
func (c *candidate) ended(now time.Time) bool { return !now.Before(c.forgotten()) }

// forgotten is when a copy of the evidence would be refused for its age alone.
func (c *candidate) forgotten() time.Time { return c.evidence.ExpiresAt.Add(clockSkew) }

func (v *Validator) checkCover(_ context.Context, c *candidate) *refusal {
	covered := slices.DeleteFunc(slices.Clone(c.entries), func(entry TrustedIssuer) bool { return !entry.covers(&c.evidence) })
	if len(covered) == 0 {
		return refuse(CodeNotCovered, c.evidence.Method+", "+c.evidence.Assurance+", "+c.evidence.Subject)
	}
	delegates := func(entry TrustedIssuer) bool { return entry.AllowDelegated }
	if len(c.evidence.OnBehalfOf) > 0 && !slices.ContainsFunc(covered, delegates) {
		return refuse(CodeDelegation, "") // taking the list out would change what was signed
	}
	return nil
}

func (v *Validator) checkReplay(ctx context.Context, c *candidate) *refusal {
	first, err := v.replays.Once(ctx, replayKey("evidence", c.issuer, c.evidence.ID), c.forgotten())
	if err != nil {
		return refuse(CodeReplayStoreFailed, err.Error())
	}
	if !first {
		return refuse(CodeReplayed, c.evidence.ID)
	}
	return nil
}

// replayKey hashes its parts so that none of them can pass for another.
func replayKey(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256([]byte(part))
		hash.Write(sum[:])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func (v *Validator) checkStillGood(_ context.Context, c *candidate) *refusal {
	now := v.now()
	switch {
	case c.ended(now):
		return refuse(CodeExpired, "while it was checked")
	case len(v.trust.of(c.issuer, now)) < len(c.entries):
		return refuse(CodeUntrustedIssuer, "a trust entry ended while it was checked")
	}
	return nil
}

// canonicalizations are the names under which RFC 8785 is written; left out, it is meant.
var canonicalizations = []string{"", "rfc8785", "jcs"}

func (v *Validator) checkKey(ctx context.Context, c *candidate) *refusal {
	proof := &c.evidence.Proof
	if proof.Alg != "EdDSA" && proof.Alg != "Ed25519" { // RFC 8037, RFC 9864
		return refuse(CodeUnsupportedAlgorithm, proof.Alg)
	}
	if !slices.Contains(canonicalizations, strings.ToLower(proof.Canonicalization)) {
		return refuse(CodeUnsupportedAlgorithm, proof.Canonicalization)
	}

	key, problem, detail := v.keyOf(ctx, c.caller, c.issuer, proof.Kid)
	if problem != keyGood {
		return refuse(evidenceKeyCodes[problem], detail)
	}

	c.key = key
	return nil
}

func (v *Validator) checkSignature(_ context.Context, c *candidate) *refusal {
	signed, err := withoutMember(c.canonical, "proof", "value")
	if err != nil {
		return refuse(CodeMalformed, err.Error())
	}
	signature, err := decodeBase64URL(c.evidence.Proof.Value)
	if err != nil || !verifies(c.key, signed, signature) {
		return refuse(CodeInvalidSignature, "")
	}
	return nil
}

// decodeBase64URL takes padding or none; no second way to write the same bytes.
func decodeBase64URL(text string) ([]byte, error) {
	encoding := base64.RawURLEncoding
	if strings.HasSuffix(text, "=") {
		encoding = base64.URLEncoding
	}
	if strings.ContainsAny(text, "\r\n") { // encoding/base64 skips them
		return nil, base64.CorruptInputError(0)
	}
	return encoding.Strict().DecodeString(text)
}

func verifies(key ed25519.PublicKey, message, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && len(signature) == ed25519.SignatureSize && ed25519.Verify(key, message, signature)
}

const timeFormat = "2006-01-02T15:04:05.000Z"

var errTime = errors.New("must be an ISO 8601 time with a zone, such as 2026-11-21T12:00:00.000Z")

// Now returns the current instant, cut to milliseconds as the contract writes it.
func Now() Time { return At(time.Now()) }

// At cuts an instant to UTC milliseconds.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// ParseTime reads RFC 3339 with any offset and converts to UTC milliseconds; a time without zone is refused, and so is
// one outside the years 0000–9999 in UTC, which could not be written again.
func ParseTime(text string) (Time, error) {
	const hourEnd = len("2026-11-21T12")
	if len(text) <= hourEnd || text[hourEnd] != ':' || strings.Contains(text, ",") { // package time reads more than RFC 3339
		return Time{}, errTime
	}

	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return Time{}, errTime
	}

	at := At(parsed)
	if year := at.Year(); year < 0 || year > 9999 {
		return Time{}, errTime
	}
	return at, nil
}

// AppendText appends 2006-01-02T15:04:05.000Z without quotes.
func (t Time) AppendText(dst []byte) ([]byte, error) {
	return t.UTC().AppendFormat(dst, timeFormat), nil
}

// MarshalJSON writes 2006-01-02T15:04:05.000Z.
func (t Time) MarshalJSON() ([]byte, error) {
	dst := make([]byte, 0, len(timeFormat)+2)
	dst = t.UTC().AppendFormat(append(dst, '"'), timeFormat)
	return append(dst, '"'), nil
}

// UnmarshalJSON reads what ParseTime reads; null leaves the time as it is.
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}

	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errTime
	}

	parsed, err := ParseTime(text)
	if err != nil {
		return err
	}

	*t = parsed
	return nil
}

// MarshalJSON writes one audience as a string and several as a list.
func (a Audience) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}

// UnmarshalJSON reads a string or a list of strings; null leaves the audience as it is.
func (a *Audience) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}

	var one string
	if err := json.Unmarshal(data, &one); err == nil {
		*a = Audience{one}
		return nil
	}

	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return errors.New("audience must be a string or a list of strings")
	}

	*a = many
	return nil
}
