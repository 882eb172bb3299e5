package policypart

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/gowebpki/jcs"
)

// terms is what a demand freezes: what is asked for, not how it is worded.
type terms struct {
	Kind       string            `json:"kind"`
	Code       string            `json:"code,omitempty"`
	Amount     string            `json:"amount,omitempty"`
	Currency   string            `json:"currency,omitempty"`
	Accepts    []json.RawMessage `json:"accepts,omitempty"`
	Scopes     []string          `json:"scopes,omitempty"`
	Challenges []Challenge       `json:"auth_challenges,omitempty"`
	SamePerson bool              `json:"same_person,omitempty"`
}

// Terms returns the hash of the part's terms (lower-case hex SHA-256 over their RFC 8785 form, so that white space and
// the order of keys do not count). A resolution is valid for these terms only (message contract, section 9, check 7).
func (p Part) Terms() (string, error) {
	body, err := json.Marshal(terms{p.Kind, p.Code, p.Amount, p.Currency, p.Accepts, p.Scopes, p.AuthChallenges, p.SamePerson})
	if err != nil {
		return "", fmt.Errorf("write terms: %w", err)
	}

	canonical, err := jcs.Transform(body)
	if err != nil {
		return "", fmt.Errorf("write terms in canonical form: %w", err)
	}

	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}
