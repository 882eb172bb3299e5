package activitypub

import (
	"errors"
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"
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
