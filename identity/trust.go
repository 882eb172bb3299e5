package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// TrustedIssuer is the operator's word that an issuer may be relied on, and for what (message contract, section 10).
// Several entries may name one issuer; a piece of evidence must be covered by one of them alone.
type TrustedIssuer struct {
	Issuer          string    // see CanonicalIssuer
	Methods         []string  // accepted methods, compared whole
	Assurance       []string  // accepted assurance levels, compared whole
	SubjectPrefixes []string  // compared literally; each ends at a separator: / : # ? = or @
	AllowDelegated  bool      // on_behalf_of of this issuer is believed
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
