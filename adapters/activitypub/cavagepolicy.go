package activitypub

import (
	"crypto"
	"errors"
	"net/http"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
)

func (s *cavageSignature) covers(name string) bool { return slices.Contains(s.Covered, name) }

// checkCavage applies the policy of section 4.2 of the ActivityPub reference: what must be covered, the digest of
// the body and the time window. None of it needs the key, so that a bad request never makes us fetch one.
func checkCavage(r signedRequest, now time.Time) (claim, error) {
	headers := r.Header["Signature"]
	if len(headers) != 1 {
		return claim{}, errors.New("want exactly one Signature header")
	}
	s, err := parseCavage(headers[0])
	if err != nil {
		return claim{}, err
	}
	for _, check := range []func() error{
		s.checkAlgorithm,
		func() error { return s.checkCoverage(r) },
		func() error { return s.checkDigest(r) },
		func() error { return s.checkTime(r, now) },
	} {
		if err := check(); err != nil {
			return claim{}, err
		}
	}
	verify := func(key crypto.PublicKey) error { return s.verify(r, key) }
	return claim{KeyID: s.KeyID, Scheme: schemeCavage, Verify: verify}, nil
}

// checkAlgorithm refuses what this network does not use. The parameter chooses nothing: the type of the key does.
func (s *cavageSignature) checkAlgorithm() error {
	switch s.Algorithm {
	case "", "hs2019", "rsa-sha256", "ed25519":
	default:
		return errors.New("signature algorithm is not supported: use rsa-sha256 or hs2019")
	}
	return nil
}

func (s *cavageSignature) checkCoverage(r signedRequest) error {
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

// checkCovered refuses a covered header that is absent: signing over an empty string would hide its removal.
func (s *cavageSignature) checkCovered(r signedRequest, name string) error {
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
		return errors.New("signature covers a header that is absent: " + document.Clip(name, 64))
	}
	return nil
}

func (s *cavageSignature) checkDigest(r signedRequest) error {
	if r.Method != http.MethodPost {
		return nil
	}
	return matchDigest(r.Header.Values("Digest"), r.Body)
}

func (s *cavageSignature) checkTime(r signedRequest, now time.Time) error {
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
// can only shorten its life: whoever passes the request on could have written it.
func (s *cavageSignature) expiry(made time.Time) time.Time {
	expires := time.Unix(s.Expires, 0)
	switch {
	case !s.HasExpires, !s.covers("(expires)") && expires.After(made.Add(defaultLife)):
		return time.Time{}
	}
	return expires
}

// Time window of a signature: Mastodon's, which all peers keep to.
const (
	clockSkew     = time.Hour
	defaultLife   = 5 * time.Minute
	maxLife       = 12 * time.Hour
	errTimeFuture = "signature is dated in the future"
	errTimePast   = "signature is too old"
)

func checkWindow(made, expires, now time.Time) error {
	if made.After(now.Add(clockSkew)) {
		return errors.New(errTimeFuture)
	}
	if expires.IsZero() {
		expires = made.Add(defaultLife)
	}
	if latest := made.Add(maxLife); expires.After(latest) {
		expires = latest
	}
	if now.After(expires.Add(clockSkew)) {
		return errors.New(errTimePast)
	}
	return nil
}
