package activitypub

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"inbox/adapters/activitypub/document"
)

// checkMessageSignature applies the policy of section 4.4 of the ActivityPub reference and gives the first signature
// that keeps it. Fedify 2.3 does not demand that the digest is covered; a body could then be exchanged, so we do.
func checkMessageSignature(r signedRequest, now time.Time) (claim, error) {
	all, err := parseMessageSignatures(r.Header)
	if err != nil {
		return claim{}, err
	}
	var first error
	for _, s := range all {
		err := s.check(r, now)
		if err == nil {
			verify := func(key crypto.PublicKey) error { return s.verify(r, key) }
			return claim{KeyID: s.KeyID, Scheme: schemeRFC9421, Verify: verify}, nil
		}
		if first == nil {
			first = err
		}
	}
	return claim{}, first
}

func (s *messageSignature) check(r signedRequest, now time.Time) error {
	if s.KeyID == "" || s.Created.IsZero() {
		return errors.New("signature needs the parameters keyid and created")
	}
	if _, ok := document.Origin(s.KeyID); !ok {
		return errors.New("keyid is not an address")
	}
	switch s.Algorithm {
	case "", "rsa-v1_5-sha256", "ed25519":
	default:
		return errors.New("signature algorithm is not supported: use rsa-v1_5-sha256 or ed25519")
	}
	if err := s.checkCoverage(r); err != nil {
		return err
	}
	if _, err := s.base(r); err != nil {
		return err
	}
	return checkWindow(s.Created, s.Expires, now)
}

func (s *messageSignature) checkCoverage(r signedRequest) error {
	covered := make([]string, 0, len(s.Components))
	for _, component := range s.Components {
		name, _ := component.Value.(string)
		covered = append(covered, name)
	}
	has := func(name string) bool { return slices.Contains(covered, name) }
	_, _, query := strings.Cut(r.Target, "?")
	whole := has("@target-uri") || has("@authority") && has("@path") && (!query || has("@query"))
	switch {
	case !has("@method"):
		return errors.New("signature must cover @method")
	case !whole:
		return errors.New("signature must cover @target-uri")
	case r.Method != http.MethodPost:
		return nil
	case !has("content-digest"):
		return errors.New("signature must cover content-digest")
	}
	return matchContentDigest(r.Header.Values("Content-Digest"), r.Body)
}

// matchContentDigest compares a Content-Digest header (RFC 9530) with the raw body.
func matchContentDigest(headers []string, body []byte) error {
	digests, err := httpsfv.UnmarshalDictionary(headers)
	if err != nil {
		return errors.New("content-digest is not a dictionary of structured fields")
	}
	member, _ := digests.Get("sha-256")
	item, _ := member.(httpsfv.Item)
	sum, _ := item.Value.([]byte)
	if len(sum) == 0 {
		return errors.New("content-digest has no sha-256")
	}
	return matchSum(sum, body)
}

// base builds the signature base (RFC 9421, section 2.5).
func (s *messageSignature) base(r signedRequest) ([]byte, error) {
	var out strings.Builder
	seen := make(map[string]bool, len(s.Components))
	for _, component := range s.Components {
		name, isText := component.Value.(string)
		if !isText || name == "" || seen[name] || component.Params != nil && len(component.Params.Names()) > 0 {
			return nil, errors.New("signature covers a component that is not supported") // ;sf ;bs ;req ;tr ;key
		}
		seen[name] = true
		value, err := componentValue(r, name)
		if err != nil {
			return nil, err
		}
		out.WriteString(`"` + name + `": ` + value + "\n")
	}
	out.WriteString(`"@signature-params": ` + s.Parameters)
	return []byte(out.String()), nil
}

// componentValue gives the value of a derived component or a header (RFC 9421, sections 2.1 and 2.2).
func componentValue(r signedRequest, name string) (string, error) {
	path, query, _ := strings.Cut(r.Target, "?")
	switch name {
	case "@method":
		return r.Method, nil
	case "@target-uri":
		return r.Origin + r.Target, nil // from our configured origin, never from the connection behind a proxy
	case "@authority":
		return document.HostOf(r.Origin), nil
	case "@scheme":
		scheme, _, _ := strings.Cut(r.Origin, ":")
		return scheme, nil
	case "@request-target":
		return r.Target, nil
	case "@path":
		return path, nil
	case "@query":
		return "?" + query, nil
	case "host":
		return r.Host, nil
	}
	values := r.Header.Values(name)
	if name[0] == '@' || name != strings.ToLower(name) || len(values) == 0 {
		return "", errors.New("signature covers something that is absent or unknown: " + document.Clip(name, 64))
	}
	return joined(values), nil
}

func (s *messageSignature) verify(r signedRequest, key crypto.PublicKey) error {
	if !s.fits(key) {
		return errors.New("signature algorithm does not fit the key")
	}
	base, err := s.base(r)
	if err != nil {
		return err
	}
	return verifyBytes(key, base, s.Signature)
}

// fits says whether alg, if given, names what the key is for. RSA keys here mean v1.5, never PSS by guess.
func (s *messageSignature) fits(key crypto.PublicKey) bool {
	switch key.(type) {
	case *rsa.PublicKey:
		return s.Algorithm == "" || s.Algorithm == "rsa-v1_5-sha256"
	case ed25519.PublicKey:
		return s.Algorithm == "" || s.Algorithm == "ed25519"
	}
	return false
}
