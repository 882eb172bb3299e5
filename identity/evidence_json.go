package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// plainEvidence is Evidence without its methods, for encoding/json.
type plainEvidence Evidence

// evidenceKeys are the keys of this contract; all others are Extra.
var evidenceKeys = []string{
	"id", "subject", "issuer", "method", "assurance", "audience", "issued_at", "not_before", "expires_at",
	"on_behalf_of", "claims", "source", "proof",
}

// MarshalJSON writes the keys of the contract, then Extra in the order of its keys.
func (e Evidence) MarshalJSON() ([]byte, error) {
	body, err := json.Marshal(plainEvidence(e))
	if err != nil || len(e.Extra) == 0 {
		return body, err
	}
	return AppendMembers(body, e.Extra)
}

// UnmarshalJSON reads an object and keeps the keys that it does not know in Extra.
func (e *Evidence) UnmarshalJSON(data []byte) error {
	var plain plainEvidence
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	*e = Evidence(plain)
	extra, err := UnknownMembers(data, evidenceKeys)
	e.Extra = extra
	return err
}

// UnknownMembers returns the members of a JSON object whose keys are not listed; nil when there are none.
func UnknownMembers(object []byte, known []string) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, fmt.Errorf("must be an object: %w", err)
	}
	maps.DeleteFunc(members, func(key string, _ json.RawMessage) bool { return slices.Contains(known, key) })
	if len(members) == 0 {
		return nil, nil
	}
	return members, nil
}

// AppendMembers writes more members, ordered by key, into a JSON object that has at least one already.
func AppendMembers(object []byte, members map[string]json.RawMessage) ([]byte, error) {
	object = bytes.TrimSuffix(object, []byte{'}'})
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if !json.Valid(members[key]) {
			return nil, fmt.Errorf("%s: not JSON", key)
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		object = append(append(append(append(object, ','), name...), ':'), members[key]...)
	}
	return append(object, '}'), nil
}
