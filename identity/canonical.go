package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gowebpki/jcs"
)

var errNoObject = errors.New("must be a JSON object")

// canonicalObject returns the RFC 8785 form of an object. Everything that a signature covers is read from this form:
// equal names, broken UTF-8 and lone surrogates are refused at every depth, and a number has exactly the value that
// was signed.
func canonicalObject(raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return nil, errNoObject
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return nil, err
	}
	if canonical[0] != '{' {
		return nil, errNoObject
	}
	return canonical, nil
}

// decodeExact reads a canonical object into a struct. encoding/json folds the case of names when it fills structs, so
// a name that only folds to one of names is refused: two readers would see different documents.
func decodeExact(canonical []byte, into any, names ...string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil || members == nil {
		return errNoObject
	}
	for key := range members {
		if folds(key, names) {
			return fmt.Errorf("%q is not how the member is written", key)
		}
	}
	return json.Unmarshal(canonical, into)
}

func folds(key string, names []string) bool {
	return !slices.Contains(names, key) &&
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, key) })
}

// withoutMember takes one member out of an object within the document, or out of the document itself when object is
// empty, and returns the canonical form of what is left.
func withoutMember(canonical []byte, object, member string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil {
		return nil, err
	}
	if object == "" {
		delete(members, member)
		return encodeCanonical(members)
	}
	inner, err := withoutMember(members[object], "", member)
	if err != nil {
		return nil, err
	}
	members[object] = inner
	return encodeCanonical(members)
}

// encodeCanonical writes the RFC 8785 form of a value.
func encodeCanonical(value any) ([]byte, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return jcs.Transform(body)
}
