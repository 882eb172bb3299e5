package activitypub

import (
	"crypto"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Signature schemes as they are written into evidence.
const (
	schemeCavage  = "draft-cavage"
	schemeRFC9421 = "rfc9421"
)

const (
	maxSignatureBytes = 8 << 10
	maxCovered        = 32
)

// signedRequest is what a signature can cover, taken from the wire before anything rewrote it.
type signedRequest struct {
	Method string
	Target string // request target as received: path and query, undecoded
	Host   string
	Origin string // our public scheme://host, as the sender saw it
	Header http.Header
	Body   []byte

	AnyHost bool // do not demand that a draft-cavage signature covers the host
}

// claim is a signature that passed every check that needs no key.
type claim struct {
	KeyID  string
	Scheme string
	Verify func(key crypto.PublicKey) error
}

// cavageSignature is a parsed Signature header of draft-cavage-http-signatures-12.
type cavageSignature struct {
	KeyID      string
	Algorithm  string
	Covered    []string // lower case, in order
	Signature  string   // base64
	Created    int64
	Expires    int64
	HasCreated bool
	HasExpires bool
}

// parseCavage reads the header. go-fed/httpsig splits at every comma and does not allow blanks, so key ids with a
// comma and well-formed headers of Pleroma and others fail there; this scanner respects quotes.
func parseCavage(header string) (cavageSignature, error) {
	var s cavageSignature
	if len(header) > maxSignatureBytes {
		return s, errors.New("signature header is too long")
	}
	rest := strings.TrimSpace(header)
	if after, found := strings.CutPrefix(rest, "Signature "); found { // seen in the wild: the word of the Authorization form
		rest = strings.TrimSpace(after)
	}
	seen := make([]string, 0, 8)
	for rest != "" {
		name, value, after, err := cavageParameter(rest)
		if err != nil {
			return s, err
		}
		if slices.Contains(seen, name) {
			return s, errors.New("signature parameter " + strconv.Quote(name) + " is repeated")
		}
		seen = append(seen, name)
		if err := s.set(name, value); err != nil {
			return s, err
		}
		rest = after
	}
	return s, s.complete()
}

// cavageParameter cuts one name="value" or name=value from the front.
func cavageParameter(text string) (name, value, rest string, err error) {
	name, text, found := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	if !found || name == "" || strings.ContainsAny(name, "\", ") {
		return "", "", "", errors.New("signature header is malformed")
	}
	text = strings.TrimLeft(text, " \t")
	if quoted, isQuoted := strings.CutPrefix(text, `"`); isQuoted {
		value, rest, found = strings.Cut(quoted, `"`)
		if !found {
			return "", "", "", errors.New("signature header has an open quote")
		}
	} else {
		end := strings.IndexByte(text, ',')
		if end < 0 {
			end = len(text)
		}
		value, rest = strings.TrimSpace(text[:end]), text[end:]
	}
	rest = strings.TrimLeft(rest, " \t")
	if rest == "" {
		return name, value, "", nil
	}
	rest, found = strings.CutPrefix(rest, ",")
	rest = strings.TrimLeft(rest, " \t")
	if !found || rest == "" {
		return "", "", "", errors.New("signature header is malformed")
	}
	return name, value, rest, nil
}

func (s *cavageSignature) set(name, value string) (err error) {
	switch name {
	case "keyId":
		s.KeyID = value
	case "algorithm":
		s.Algorithm = strings.ToLower(value)
	case "signature":
		s.Signature = value
	case "headers":
		s.Covered = strings.Fields(strings.ToLower(value))
		if len(s.Covered) == 0 {
			return errors.New("signature covers nothing")
		}
	case "created":
		s.Created, err = strconv.ParseInt(value, 10, 64)
		s.HasCreated = true
	case "expires":
		var seconds float64 // the draft allows a decimal here
		seconds, err = strconv.ParseFloat(value, 64)
		s.Expires, s.HasExpires = int64(seconds), true
		if math.IsNaN(seconds) || seconds < 0 || seconds > 1e12 {
			err = errors.New("out of range")
		}
	}
	if err != nil {
		return errors.New("signature parameter " + strconv.Quote(name) + " is not a time")
	}
	return nil
}

func (s *cavageSignature) complete() error {
	switch {
	case s.KeyID == "":
		return errors.New("signature has no keyId")
	case s.Signature == "":
		return errors.New("signature header has no signature")
	case len(s.Covered) > maxCovered:
		return errors.New("signature covers too many headers")
	}
	if s.Covered == nil {
		s.Covered = []string{"date"}
		if s.Algorithm == "hs2019" {
			s.Covered = []string{"(created)"}
		}
	}
	return nil
}
