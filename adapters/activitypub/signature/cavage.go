package signature

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-fed/httpsig"

	"inbox/internal/clip"
)

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

// parseCavage reads the header. go-fed/httpsig splits values at commas (TestLibrarySplitsValuesAtCommas), does not find parameters after
// blanks (TestLibraryReadsOneSpelling), lets a repeated parameter win (TestLibraryTakesTheLastOfRepeatedParameters), and does not say what a
// signature covers (TestLibraryAcceptsAnyCoverage).
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

func (s *cavageSignature) covers(name string) bool { return slices.Contains(s.Covered, name) }

// checkCavage applies the policy of draft-cavage signatures (decision 0004): what must be covered, the digest of
// the body and the time window. None of it needs the key, so that a bad request never makes us fetch one. go-fed/httpsig takes the first of
// several headers (TestLibraryTakesTheFirstOfSeveralHeaders).
func checkCavage(r Request, now time.Time) (Claim, error) {
	headers := r.Header["Signature"]
	if len(headers) != 1 {
		return Claim{}, errors.New("want exactly one Signature header")
	}

	s, err := parseCavage(headers[0])
	if err != nil {
		return Claim{}, err
	}

	for _, check := range []func() error{
		s.checkAlgorithm,
		func() error { return s.checkCoverage(r) },
		func() error { return s.checkDigest(r) },
		func() error { return s.checkTime(r, now) },
	} {
		if err := check(); err != nil {
			return Claim{}, err
		}
	}

	verify := func(key crypto.PublicKey) error { return s.verify(r, key) }
	return Claim{KeyID: s.KeyID, Scheme: Cavage, ForHost: s.covers("host"), Verify: verify}, nil
}

// checkAlgorithm refuses what this network does not use. The parameter chooses nothing: the type of the key does. go-fed/httpsig ignores
// it (TestLibraryIgnoresTheAlgorithm).
func (s *cavageSignature) checkAlgorithm() error {
	switch s.Algorithm {
	case "", "hs2019", "rsa-sha256", "ed25519":
	default:
		return errors.New("signature algorithm is not supported: use rsa-sha256 or hs2019")
	}
	return nil
}

// checkCoverage demands that the signature covers what the policy asks for. go-fed/httpsig is content with a date
// (TestLibraryAcceptsAnyCoverage).
func (s *cavageSignature) checkCoverage(r Request) error {
	required := []string{"(request-target)"}
	if !r.AnyHost {
		required = append(required, "host")
	}

	if r.Method == http.MethodPost {
		required = append(required, "digest")
	}

	for _, name := range required {
		if !s.covers(name) {
			return errors.New("signature must cover " + name)
		}
	}

	if !s.covers("date") && !s.covers("(created)") {
		return errors.New("signature must cover date or (created)")
	}

	for _, name := range s.Covered {
		if err := s.checkCovered(r, name); err != nil {
			return err
		}
	}
	return nil
}

// checkCovered refuses a covered header that is absent: signing over an empty string would hide its removal. go-fed/httpsig notices
// it only when the key is there (TestLibraryMissesAbsentHeadersUntilItHasTheKey).
func (s *cavageSignature) checkCovered(r Request, name string) error {
	switch {
	case name == "(request-target)", name == "host":
		return nil
	case name == "(created)":
		if s.Algorithm != "hs2019" || !s.HasCreated {
			return errors.New("(created) needs algorithm hs2019 and the parameter created")
		}
	case name == "(expires)":
		if s.Algorithm != "hs2019" || !s.HasExpires {
			return errors.New("(expires) needs algorithm hs2019 and the parameter expires")
		}
	case name[0] == '(':
		return errors.New("signature covers an unknown component")
	case len(r.Header.Values(name)) == 0:
		return errors.New("signature covers a header that is absent: " + clip.Bytes(name, 64))
	}

	return nil
}

// checkDigest compares the digest with the body. go-fed/httpsig does not (TestLibraryComparesNoDigest).
func (s *cavageSignature) checkDigest(r Request) error {
	if r.Method != http.MethodPost {
		return nil
	}
	return matchDigest(r.Header.Values("Digest"), r.Body)
}

// checkTime holds the signature to the time window. go-fed/httpsig accepts a date of any age (TestLibraryAcceptsOldDates).
func (s *cavageSignature) checkTime(r Request, now time.Time) error {
	made := time.Unix(s.Created, 0)
	if !s.covers("(created)") {
		var err error
		if made, err = time.Parse(http.TimeFormat, r.Header.Get("Date")); err != nil {
			return errors.New("date header is not an HTTP date")
		}
	}
	return checkWindow(made, s.expiry(made), now)
}

// expiry is when the signer wants the signature to end; zero = it did not say. A time that the signature does not cover
// can only shorten its life: a relay could have written it.
func (s *cavageSignature) expiry(made time.Time) time.Time {
	expires := time.Unix(s.Expires, 0)
	switch {
	case !s.HasExpires, !s.covers("(expires)") && expires.After(made.Add(defaultLife)):
		return time.Time{}
	}
	return expires
}

// verify checks the signature over the target as received and, for old Mastodon, once without its query.
func (s *cavageSignature) verify(r Request, key crypto.PublicKey) error {
	if s.verifyTarget(r, key) == nil {
		return nil
	}
	path, _, hasQuery := strings.Cut(r.Target, "?")
	if !hasQuery {
		return errWrongSignature
	}

	r.Target = path
	return s.verifyTarget(r, key)
}

// verifyTarget checks the signature by go-fed/httpsig where that library is right, otherwise over our own signing string.
// TestBothVerifiersAgree compares the two.
func (s *cavageSignature) verifyTarget(r Request, key crypto.PublicKey) error {
	if s.suitsLibrary() {
		return s.verifyByLibrary(r, key)
	}

	signature, err := base64.StdEncoding.DecodeString(s.Signature)
	if err != nil {
		return errWrongSignature
	}
	return verifyBytes(key, []byte(s.signingString(r)), signature)
}

// suitsLibrary reports whether go-fed/httpsig reads the signature as it is meant and builds the right signing string.
func (s *cavageSignature) suitsLibrary() bool {
	if strings.ContainsAny(s.Signature, `,"`) { // TestLibrarySplitsValuesAtCommas, TestSignatureBringsNoParameters
		return false
	}

	for _, name := range s.Covered {
		switch {
		case name == "(created)", name == "(expires)": // TestLibraryJudgesTimesByItsOwnClock
			return false
		case name == "authorization": // TestLibraryMistakesAuthorizationForTheSignature
			return false
		case strings.ContainsAny(name, `,"`): // TestLibrarySplitsValuesAtCommas
			return false
		}
	}
	return true
}

// verifyByLibrary verifies a copy of the request with go-fed/httpsig, because the library changes the header map
// (TestLibraryWritesHostIntoTheHeader). The copy's Signature header uses the only spelling that the library reads (TestLibraryReadsOneSpelling). It
// omits created and expires, which suitsLibrary has found not to be covered.
func (s *cavageSignature) verifyByLibrary(r Request, key crypto.PublicKey) error {
	var algorithm httpsig.Algorithm
	switch key := key.(type) {
	case *rsa.PublicKey:
		algorithm = httpsig.RSA_SHA256
	case ed25519.PublicKey:
		if len(key) != ed25519.PublicKeySize { // TestLibraryPanicsOnShortKeys
			return errWrongSignature
		}
		algorithm = httpsig.ED25519
	default:
		return errWrongSignature
	}

	header := make(http.Header, len(s.Covered)+1)
	for _, name := range s.Covered {
		canonical := http.CanonicalHeaderKey(name)
		if values := r.Header[canonical]; len(values) > 0 {
			header[canonical] = values
		}
	}
	header["Host"] = []string{r.Host}
	header["Signature"] = []string{`keyId="key",headers="` + strings.Join(s.Covered, " ") + `",signature="` + s.Signature + `"`}

	verifier, err := httpsig.NewVerifier(standIn(r.Method, r.Target, header))
	if err != nil || verifier.Verify(key, algorithm) != nil {
		return errWrongSignature
	}
	return nil
}

// signingString returns the text that is signed, for what go-fed/httpsig cannot verify (suitsLibrary).
func (s *cavageSignature) signingString(r Request) string {
	var out strings.Builder
	out.Grow(512)
	for i, name := range s.Covered {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString(name)
		out.WriteString(": ")
		switch name {
		case "(request-target)":
			out.WriteString(strings.ToLower(r.Method) + " " + r.Target)
		case "(created)":
			out.WriteString(strconv.FormatInt(s.Created, 10))
		case "(expires)":
			out.WriteString(strconv.FormatInt(s.Expires, 10))
		case "host":
			out.WriteString(r.Host)
		default:
			out.WriteString(joined(r.Header.Values(name)))
		}
	}

	return out.String()
}
