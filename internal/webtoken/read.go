package webtoken

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-jose/go-jose/v4"

	"inbox/internal/uniquejson"
)

// token is a compact JWS that was read and not yet verified.
type token struct {
	compact string
	header  header
	payload []byte
	claims  claims
}

// header is what is read of a protected header. jku, x5u, x5c and, outside of a DPoP proof, jwk are not read at all.
type header struct {
	Alg  string          `json:"alg"`
	Kid  string          `json:"kid"`
	Typ  string          `json:"typ"`
	Crit json.RawMessage `json:"crit"`
	B64  json.RawMessage `json:"b64"`
	JWK  json.RawMessage `json:"jwk"` // read for DPoP proofs only
}

// claims are those that are read of any token.
type claims struct {
	Issuer    string    `json:"iss"`
	Subject   string    `json:"sub"`
	Audience  audience  `json:"aud"`
	ExpiresAt date      `json:"exp"`
	NotBefore date      `json:"nbf"`
	IssuedAt  date      `json:"iat"`
	ID        string    `json:"jti"`
	ClientID  string    `json:"client_id"`
	Nonce     *string   `json:"nonce"`
	Scope     *string   `json:"scope"`
	Scp       *audience `json:"scp"` // some issuers' spelling of scope, a list or a text
	Confirm   *confirm  `json:"cnf"`

	Method string `json:"htm"` // the last three are those of a DPoP proof
	URL    string `json:"htu"`
	Hash   string `json:"ath"`
}

// confirm is the key that a token is bound to (RFC 7800).
type confirm struct {
	Thumbprint string          `json:"jkt"`
	Other      json.RawMessage `json:"x5t#S256"`
}

// UnmarshalJSON refuses members that encoding/json would take for one.
func (c *confirm) UnmarshalJSON(data []byte) error {
	type plain confirm
	if err := uniquejson.Object(data); err != nil {
		return err
	}
	return json.Unmarshal(data, (*plain)(c))
}

// audience is a text or a list of texts.
type audience []string

// UnmarshalJSON reads either form.
func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audience{one}
		return nil
	}

	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return errors.New("neither a text nor a list of texts")
	}

	*a = list
	return nil
}

// date is a NumericDate (RFC 7519, section 2).
type date struct{ time.Time }

// UnmarshalJSON reads seconds since 1970, whole or not.
func (d *date) UnmarshalJSON(data []byte) error {
	var seconds float64
	if err := json.Unmarshal(data, &seconds); err != nil || seconds < 0 || seconds > 1<<40 {
		return errors.New("not a time in seconds")
	}
	whole, part := math.Modf(seconds)
	d.Time = time.Unix(int64(whole), int64(part*1e9))
	return nil
}

// MarshalJSON writes whole seconds.
func (d date) MarshalJSON() ([]byte, error) { return json.Marshal(d.Unix()) }

// After is false for a time that is not there.
func (d date) After(other time.Time) bool { return !d.IsZero() && d.Time.After(other) }

// Sub is the time between two dates.
func (d date) Sub(other date) time.Duration { return d.Time.Sub(other.Time) }

// read takes a compact JWS apart: one signature, no critical extensions, no encryption, no JSON form.
func read(compact string) (*token, error) {
	if len(compact) > MaxTokenBytes {
		return nil, fmt.Errorf("over %d bytes", MaxTokenBytes)
	}

	pieces := strings.Split(compact, ".")
	if len(pieces) != 3 {
		return nil, errors.New("not in three pieces")
	}

	t := &token{compact: compact}
	var err error
	if err = decode(pieces[0], &t.header, nil); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err = decode(pieces[1], &t.claims, &t.payload); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	if _, err = base64.RawURLEncoding.Strict().DecodeString(pieces[2]); err != nil || pieces[2] == "" {
		return nil, errors.New("no signature")
	}
	if len(t.header.Crit) > 0 || len(t.header.B64) > 0 {
		return nil, errors.New("a critical extension is not known")
	}

	return t, t.names()
}

// decode reads one piece: an object without duplicate members at any depth, also in another case.
func decode(piece string, into any, raw *[]byte) error {
	body, err := base64.RawURLEncoding.Strict().DecodeString(piece)
	if err != nil {
		return errors.New("not base64url")
	}
	if err := uniquejson.Object(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return errors.New("not what it must be")
	}

	if raw != nil {
		*raw = body
	}

	return nil
}

// names checks the texts that become keys and evidence.
func (t *token) names() error {
	for _, name := range []string{t.claims.Issuer, t.claims.Subject, t.claims.ClientID, t.claims.ID, t.header.Kid} {
		if len(name) > maxNameBytes || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || !unicode.IsPrint(r) }) {
			return errors.New("a name in it is too long or cannot be printed")
		}
	}
	return nil
}

// typed reports whether the typ header is a media type, with or without "application/" (RFC 7515, section 4.1.9).
func (t *token) typed(name string) bool {
	return strings.EqualFold(strings.TrimPrefix(strings.ToLower(t.header.Typ), "application/"), name)
}

// verify checks the signature with a key that fits the algorithm.
func (t *token) verify(key publicKey, algs []string) error {
	if !slices.Contains(algs, t.header.Alg) {
		return fmt.Errorf("algorithm %q is not accepted", t.header.Alg)
	}
	if !key.fits(t.header.Alg) {
		return errors.New("the key is for another algorithm")
	}

	signed, err := jose.ParseSignedCompact(t.compact, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(t.header.Alg)})
	if err != nil {
		return errors.New("the signature cannot be read")
	}
	if _, err := signed.Verify(key.raw); err != nil {
		return errors.New("the signature does not fit")
	}

	return nil
}

// scopes returns what the token is limited to; has is false without such a claim.
func (c *claims) scopes() (list []string, has bool) {
	switch {
	case c.Scope != nil:
		return strings.Fields(*c.Scope), true
	case c.Scp != nil:
		for _, entry := range *c.Scp {
			list = append(list, strings.Fields(entry)...)
		}
		return list, true
	}
	return nil, false
}
