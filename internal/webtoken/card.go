package webtoken

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gowebpki/jcs"

	"inbox/identity"
)

// CardSignature is one signature of an agent card (A2A 1.0, section 8.4): a detached JWS over the canonical card.
type CardSignature struct {
	Protected string `json:"protected"`
	Signature string `json:"signature"`
}

const maxCardSignatures = 16

// cardMembers are the members of a 1.0 card. Readers made from its schema see these alone.
var cardMembers = []string{
	"name", "description", "supportedInterfaces", "provider", "version", "documentationUrl", "capabilities", "securitySchemes",
	"securityRequirements", "defaultInputModes", "defaultOutputModes", "skills", "iconUrl",
}

// SignCard signs a card with each key, in the forms in which verifiers read it: as the schema of 1.0 has it, without empty
// values; as the document stands, which covers the members of 0.3, too; and, for @a2a-js/sdk 1.3 alone, which reads a card
// two times before it verifies and loses these on the way, as in the schema without securitySchemes. VerifyCard does not
// take the last one. Keys' origin is where jku leads.
func SignCard(document []byte, keys []identity.SigningKey, jku string) ([]CardSignature, error) {
	forms, err := cardForms(document)
	if err != nil {
		return nil, err
	}
	if forms, err = withLossyForm(forms); err != nil {
		return nil, err
	}

	var list []CardSignature
	for _, key := range keys {
		header, err := json.Marshal(map[string]string{"alg": "EdDSA", "typ": "JOSE", "kid": key.Kid, "jku": jku})
		if err != nil {
			return nil, err
		}
		protected := base64.RawURLEncoding.EncodeToString(header)
		for _, form := range forms {
			signed := protected + "." + base64.RawURLEncoding.EncodeToString(form)
			list = append(list, CardSignature{protected, base64.RawURLEncoding.EncodeToString(ed25519.Sign(key.Private, []byte(signed)))})
		}
	}

	return list, nil
}

// withLossyForm adds the form without securitySchemes to those of a card in the schema of 1.0.
func withLossyForm(forms [][]byte) ([][]byte, error) {
	if len(forms) < 2 {
		return forms, nil
	}

	var members map[string]any
	if err := json.Unmarshal(forms[0], &members); err != nil {
		return nil, fmt.Errorf("read card: %w", err)
	}
	if _, has := members["securitySchemes"]; !has {
		return forms, nil
	}

	delete(members, "securitySchemes")
	lossy, err := canonical(members)
	return append(forms, lossy), err
}

// Errors of VerifyCard.
var (
	ErrCardUnsigned = errors.New("the card is not signed with a key of its origin")
	ErrCardForged   = errors.New("the signature of the card does not fit")
)

// VerifyCard checks the signatures of a card with the keys that its own origin publishes (a JWK Set); what a signature says
// about the place of its key counts for nothing. One that fits is enough. ErrCardUnsigned: no signature names a key of the
// set; ErrCardForged: some do, and none fits. A card with supportedInterfaces may be signed without its members of 0.3, so
// that a reader must prefer that list.
func VerifyCard(document, keySet []byte) error {
	return verifyForms(document, keySet, cardForms)
}

// VerifyWhole is VerifyCard for a document of which every member counts, such as a card in the form of the message
// contract: only a signature over the whole of it is one. A signature of an A2A card by the same key, put beside other
// members, is none.
func VerifyWhole(document, keySet []byte) error {
	return verifyForms(document, keySet, func(document []byte) ([][]byte, error) {
		_, whole, err := wholeForm(document)
		return [][]byte{whole}, err
	})
}

// wholeForm is the canonical form (RFC 8785) of a document without its signatures.
func wholeForm(document []byte) (members map[string]any, whole []byte, err error) {
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, nil, fmt.Errorf("read card: %w", err)
	}
	delete(members, "signatures")
	whole, err = canonical(members)
	return members, whole, err
}

func verifyForms(document, keySet []byte, read func([]byte) ([][]byte, error)) error {
	var card struct {
		Signatures []CardSignature `json:"signatures"`
	}

	if err := json.Unmarshal(document, &card); err != nil || len(card.Signatures) == 0 || len(card.Signatures) > maxCardSignatures {
		return ErrCardUnsigned
	}

	keys, err := readKeys(keySet)
	if err != nil {
		return ErrCardUnsigned
	}

	forms, err := read(document)
	if err != nil {
		return ErrCardForged
	}

	outcome := ErrCardUnsigned
	for _, signature := range card.Signatures {
		for _, form := range forms {
			switch known, err := signature.check(form, keys); {
			case err == nil:
				return nil
			case known:
				outcome = ErrCardForged
			}
		}
	}

	return outcome
}

func (s CardSignature) check(form []byte, keys map[string]publicKey) (known bool, err error) {
	t := &token{compact: s.Protected + "." + base64.RawURLEncoding.EncodeToString(form) + "." + s.Signature}
	if err := decode(s.Protected, &t.header, nil); err != nil || len(t.header.Crit) > 0 || len(t.header.B64) > 0 {
		return false, errors.New("a header that cannot be read")
	}
	key, known := keys[t.header.Kid]
	if !known {
		return false, errors.New("not a key of the origin")
	}
	return true, t.verify(key, Algorithms())
}

// cardForms returns the canonical forms (RFC 8785) of a card without its signatures.
func cardForms(document []byte) ([][]byte, error) {
	members, whole, err := wholeForm(document)
	if err != nil {
		return nil, err
	}

	view := map[string]any{}
	for name, value := range members {
		if slices.Contains(cardMembers, name) {
			view[name] = value
		}
	}

	asInSchema(view)
	bare, _ := withoutEmpty(view).(map[string]any)
	if bare["supportedInterfaces"] == nil { // a card of 0.3: the members that count are outside of the schema
		return [][]byte{whole}, nil
	}

	schema, err := canonical(bare)
	if err != nil {
		return nil, err
	}

	return [][]byte{schema, whole}, nil
}

func canonical(members map[string]any) ([]byte, error) {
	encoded, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return jcs.Transform(encoded)
}

// asInSchema takes out what a reader of 1.0 drops: requirements in the form of 0.3 and the type key of its schemes.
func asInSchema(view map[string]any) {
	if schemes, is := view["securitySchemes"].(map[string]any); is {
		bare := map[string]any{}
		for name, scheme := range schemes {
			members, _ := scheme.(map[string]any)
			kept := map[string]any{}
			for member, value := range members {
				if strings.HasSuffix(member, "SecurityScheme") {
					kept[member] = value
				}
			}
			bare[name] = kept
		}
		view["securitySchemes"] = bare
	}

	requirements, _ := view["securityRequirements"].([]any)
	var kept []any
	for _, requirement := range requirements {
		members, _ := requirement.(map[string]any)
		if schemes, is := members["schemes"].(map[string]any); is {
			kept = append(kept, map[string]any{"schemes": listedScopes(schemes)})
		}
	}

	view["securityRequirements"] = kept
}

// listedScopes keeps the scopes that stand in the form of the schema, {"list": […]}; those in a bare array are the Go SDK's
// and are dropped by readers made from it.
func listedScopes(schemes map[string]any) map[string]any {
	kept := map[string]any{}
	for name, scopes := range schemes {
		if listed, is := scopes.(map[string]any); is {
			kept[name] = map[string]any{"list": listed["list"]}
		}
	}
	return kept
}

// withoutEmpty takes empty texts, lists and objects out at every depth.
func withoutEmpty(value any) any {
	switch known := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, inner := range known {
			if inner = withoutEmpty(inner); inner != nil {
				kept[name] = inner
			}
		}

		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		var kept []any
		for _, inner := range known {
			if inner = withoutEmpty(inner); inner != nil {
				kept = append(kept, inner)
			}
		}

		if len(kept) == 0 {
			return nil
		}
		return kept
	case string:
		if known == "" {
			return nil
		}
	}
	return value
}
