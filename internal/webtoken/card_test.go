package webtoken

import (
	"encoding/json"
	"errors"
	"testing"

	"inbox/identity"
)

const someCard = `{"name":"a","supportedInterfaces":[{"url":"https://a.test","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
"url":"https://a.test","securitySchemes":{"x":{"type":"http","httpAuthSecurityScheme":{"scheme":"Bearer"}}},
"securityRequirements":[{"x":[]},{"schemes":{"x":["s"]}}]}`

// TestFormsOfCards: each form of a signature covers what its readers see; the one that leaves securitySchemes out, for one
// SDK alone, counts for nothing here.
func TestFormsOfCards(t *testing.T) {
	key, err := identity.NewSigningKey("a.test")
	if err != nil {
		t.Fatal(err)
	}
	keys := identity.KeySet([]identity.PublicKey{key.Public()})
	signatures, err := SignCard([]byte(someCard), []identity.SigningKey{key}, "")
	if err != nil || len(signatures) != 3 {
		t.Fatalf("%d signatures, %v", len(signatures), err)
	}
	with := func(list []CardSignature, change func(card map[string]any)) []byte {
		var card map[string]any
		if err := json.Unmarshal([]byte(someCard), &card); err != nil {
			t.Fatal(err)
		}
		card["signatures"] = list
		change(card)
		return mustJSON(card)
	}
	nothing := func(map[string]any) {}
	for name, c := range map[string]struct {
		list   []CardSignature
		change func(map[string]any)
		card   error
		whole  error
	}{
		"all":                     {signatures, nothing, nil, nil},
		"of the schema":           {signatures[:1], nothing, nil, ErrCardForged},
		"of the whole":            {signatures[1:2], nothing, nil, nil},
		"without securitySchemes": {signatures[2:], nothing, ErrCardForged, ErrCardForged},
		"a member of 0.3":         {signatures, func(card map[string]any) { card["url"] = "https://evil.test" }, nil, ErrCardForged},
		"a member of 1.0":         {signatures, func(card map[string]any) { card["name"] = "b" }, ErrCardForged, ErrCardForged},
		"securitySchemes changed": {signatures, func(card map[string]any) {
			card["securitySchemes"] = map[string]any{"x": map[string]any{"mtlsSecurityScheme": map[string]any{"description": "d"}}}
		}, ErrCardForged, ErrCardForged},
		"securitySchemes taken out": {signatures, func(card map[string]any) { delete(card, "securitySchemes") }, nil, ErrCardForged}, // as the third form says
		"none":                      {nil, nothing, ErrCardUnsigned, ErrCardUnsigned},
	} {
		document := with(c.list, c.change)
		if err := VerifyCard(document, keys); !errors.Is(err, c.card) {
			t.Errorf("%s: %v, want %v", name, err, c.card)
		}
		if err := VerifyWhole(document, keys); !errors.Is(err, c.whole) {
			t.Errorf("%s, as a whole: %v, want %v", name, err, c.whole)
		}
	}
}
