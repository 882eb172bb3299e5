package signature

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
	"inbox/internal/clip"
)

// maxLabels is how many signatures of one RFC 9421 request are looked at.
const maxLabels = 4

// messageSignature is one labelled signature of RFC 9421, section 4.
type messageSignature struct {
	Components []httpsfv.Item
	Parameters string // the inner list as it is serialized in the signature base
	KeyID      string
	Algorithm  string
	Created    time.Time
	Expires    time.Time // zero = not given
	Signature  []byte
}

// parseMessageSignatures reads Signature-Input and Signature (RFC 9421, sections 4.1 and 4.2).
func parseMessageSignatures(header http.Header) ([]messageSignature, error) {
	for _, name := range []string{"Signature-Input", "Signature"} {
		if len(joined(header.Values(name))) > maxSignatureBytes {
			return nil, errors.New(name + " header is too long")
		}
	}

	inputs, err := httpsfv.UnmarshalDictionary(header.Values("Signature-Input"))
	if err != nil {
		return nil, errors.New("signature-input is not a dictionary of structured fields")
	}

	signatures, err := httpsfv.UnmarshalDictionary(header.Values("Signature"))
	if err != nil {
		return nil, errors.New("signature is not a dictionary of structured fields")
	}

	// A proxy on the way may have added a label of its own that is none of our business.
	var all []messageSignature
	problem := errors.New("signature-input is empty")
	for i, label := range inputs.Names()[:min(len(inputs.Names()), maxLabels)] {
		one, err := readMessageSignature(inputs, signatures, label)
		if err == nil {
			all = append(all, one)
		} else if i == 0 {
			problem = err
		}
	}
	if len(all) == 0 {
		return nil, problem
	}
	return all, nil
}

func readMessageSignature(inputs, signatures *httpsfv.Dictionary, label string) (messageSignature, error) {
	var s messageSignature
	member, _ := inputs.Get(label)
	covered, isList := member.(httpsfv.InnerList)
	if !isList || len(covered.Items) > maxCovered {
		return s, errors.New("signature-input is not a list of components")
	}

	value, _ := signatures.Get(label)
	item, _ := value.(httpsfv.Item)
	s.Signature, _ = item.Value.([]byte)
	if len(s.Signature) == 0 {
		return s, errors.New("signature-input and signature do not belong together")
	}

	serialized, err := httpsfv.Marshal(covered)
	if err != nil {
		return s, errors.New("signature-input cannot be serialized")
	}

	s.Components, s.Parameters = covered.Items, serialized
	if err := s.readParameters(covered.Params); err != nil {
		return s, err
	}
	return s, nil
}

func (s *messageSignature) readParameters(parameters *httpsfv.Params) error {
	if parameters == nil {
		return nil
	}
	text := func(name string) string {
		value, _ := parameters.Get(name)
		content, _ := value.(string)
		return content
	}
	instant := func(name string) time.Time {
		value, _ := parameters.Get(name)
		if seconds, ok := value.(int64); ok && seconds > 0 {
			return time.Unix(seconds, 0)
		}
		return time.Time{}
	}
	s.KeyID, s.Algorithm = text("keyid"), text("alg")
	s.Created, s.Expires = instant("created"), instant("expires")
	if _, given := parameters.Get("expires"); given && s.Expires.IsZero() {
		return errors.New("signature parameter expires is not a time") // and must not count as absent
	}
	return nil
}

// checkMessageSignature applies the policy of RFC 9421 signatures (decision 0004) and returns the first signature
// that keeps it. Fedify 2.3 does not demand that the digest is covered; a body could then be exchanged, so we do.
func checkMessageSignature(r Request, now time.Time) (Claim, error) {
	all, err := parseMessageSignatures(r.Header)
	if err != nil {
		return Claim{}, err
	}

	var first error
	for _, s := range all {
		err := s.check(r, now)
		if err == nil {
			verify := func(key crypto.PublicKey) error { return s.verify(r, key) }
			return Claim{KeyID: s.KeyID, Scheme: RFC9421, ForHost: true, Verify: verify}, nil // checkCoverage demands the host
		}

		if first == nil {
			first = err
		}
	}

	return Claim{}, first
}

func (s *messageSignature) check(r Request, now time.Time) error {
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

func (s *messageSignature) checkCoverage(r Request) error {
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

	for _, kind := range digestKinds {
		member, _ := digests.Get(kind.name)
		item, _ := member.(httpsfv.Item)
		if sum, _ := item.Value.([]byte); len(sum) > 0 {
			return kind.match(sum, body)
		}
	}
	return errors.New("content-digest has neither sha-256 nor sha-512")
}

// base builds the signature base (RFC 9421, section 2.5).
func (s *messageSignature) base(r Request) ([]byte, error) {
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

// componentValue returns the value of a derived component or a header (RFC 9421, sections 2.1 and 2.2).
func componentValue(r Request, name string) (string, error) {
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
		return "", errors.New("signature covers something that is absent or unknown: " + clip.Bytes(name, 64))
	}
	return joined(values), nil
}

func (s *messageSignature) verify(r Request, key crypto.PublicKey) error {
	if !s.fits(key) {
		return errors.New("signature algorithm does not fit the key")
	}
	base, err := s.base(r)
	if err != nil {
		return err
	}
	return verifyBytes(key, base, s.Signature)
}

// fits reports whether alg, if given, names what the key is for. RSA keys here mean v1.5, never PSS by guess.
func (s *messageSignature) fits(key crypto.PublicKey) bool {
	switch key.(type) {
	case *rsa.PublicKey:
		return s.Algorithm == "" || s.Algorithm == "rsa-v1_5-sha256"
	case ed25519.PublicKey:
		return s.Algorithm == "" || s.Algorithm == "ed25519"
	}
	return false
}
