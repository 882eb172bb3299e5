package policypart

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strconv"
	"time"
)

// Grant is what someone was allowed. A consent, an approval, a released answer, an opened tool and a link of two addresses
// are grants. A grant for another party, of another thing or of another time allows nothing, so every use is compared with
// it.
type Grant struct {
	Purpose string    // what kind of thing was granted, such as PurposeApproval
	Subject string    // principal of the party that may use it
	Agent   string    // name of the only agent with which it counts
	Digest  string    // of what was shown to the one who granted it, see Digest
	By      string    // who granted it, for the record
	Until   time.Time // it counts before this instant; zero = until someone ends it
	Ended   time.Time // when someone ended it; zero = no one did
	EndedBy string
}

// GrantLife is how long what a turn waited for counts after it was granted: a turn that runs later asks again. The marks that keep
// a granted call from being made twice are kept longer.
const GrantLife = 30 * 24 * time.Hour

// Use is what someone is about to do with a grant. Digest is of what would be done now.
type Use struct {
	Purpose string
	Subject string
	Agent   string
	Digest  string
	At      time.Time
}

// Covers reports whether the grant is good for a use, see Check.
func (g Grant) Covers(use Use) bool { return g.Check(use) == nil }

// Check compares a use with the grant; nil = the grant covers it. A zero Grant covers nothing.
func (g Grant) Check(use Use) *Refusal {
	switch {
	case g.Digest == "" || g.Purpose != use.Purpose:
		return &Refusal{Code: CodeTerms, Reason: "nothing of the kind " + strconv.Quote(use.Purpose) + " was granted"}
	case g.Agent == "" || g.Agent != use.Agent:
		return &Refusal{Code: CodeAgent, Reason: "it was granted for agent " + g.Agent}
	case g.Subject == "" || g.Subject != use.Subject:
		return &Refusal{Code: CodePrincipal, Reason: "it was granted to another party"}
	case !g.Ended.IsZero() && !use.At.Before(g.Ended):
		return &Refusal{Code: CodeExpired, Reason: "it was ended at " + g.Ended.UTC().Format(time.RFC3339) + " by " + g.EndedBy}
	case !g.Until.IsZero() && !use.At.Before(g.Until):
		return &Refusal{Code: CodeExpired, Reason: "it counted until " + g.Until.UTC().Format(time.RFC3339)}
	case subtle.ConstantTimeCompare([]byte(g.Digest), []byte(use.Digest)) != 1:
		return &Refusal{Code: CodeTerms, Reason: "it is not what was shown when it was granted"}
	}
	return nil
}

// Digest returns the digest of what is shown to the one who grants: lower-case hex SHA-256 over the texts. Texts that are
// split at other places have another digest.
func Digest(shown ...string) string {
	hash := sha256.New()
	for _, text := range shown {
		hash.Write([]byte(strconv.Itoa(len(text)) + ":" + text)) // never fails
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// IsDigest reports whether a text has the form of a Digest.
func IsDigest(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == sha256.Size && hex.EncodeToString(sum) == text
}
