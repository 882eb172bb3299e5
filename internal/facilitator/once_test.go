package facilitator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"inbox/internal/facilitator"
)

const (
	v1Terms = `{"scheme":"exact","network":"base","maxAmountRequired":"5","asset":"0xAA","payTo":"0xBB"}`
	v2Terms = `{"scheme":"exact","network":"eip155:8453","amount":"5","asset":"0xaa","payTo":"0xBB"}`
)

func exact(from, nonce string) string {
	return `{"x402Version":1,"scheme":"exact","network":"base","payload":{"signature":"0x1","authorization":{"from":"` + from + `","to":"0xBB","value":"5","nonce":"` + nonce + `"}}}`
}

// TestOneAuthorizationHasOneKey: the one who signs once cannot make two payments of it by writing it in another way.
func TestOneAuthorizationHasOneKey(t *testing.T) {
	nonce := strings.Repeat("0", 62) + "af"
	key := func(payload, terms string) string {
		return facilitator.Payment{Payload: json.RawMessage(payload), Requirements: json.RawMessage(terms)}.Key()
	}
	want := key(exact("0xA1", "0x"+nonce), v1Terms)
	for name, got := range map[string]string{
		"letters":          key(exact("0xa1", "0x"+strings.ToUpper(nonce)), v1Terms),
		"prefix":           key(exact("0XA1", nonce), v1Terms),
		"zeros":            key(exact("0xA1", "0xaf"), v1Terms),
		"other signature":  key(strings.Replace(exact("0xA1", "0x"+nonce), `"0x1"`, `"0x2"`, 1), v1Terms),
		"other envelope":   key(strings.Replace(exact("0xA1", "0x"+nonce), `{"x402Version"`, `{"more":1,"x402Version"`, 1), v1Terms),
		"second version":   key(`{"x402Version":2,"accepted":`+v2Terms+exact("0xA1", "0x"+nonce)[strings.Index(exact("", ""), `,"payload"`):], v2Terms),
		"members reversed": key(`{"payload":{"authorization":{"nonce":"0x`+nonce+`","from":"0xa1"}}}`, v1Terms),
	} {
		if got != want || len(got) != 64 {
			t.Errorf("%s: key %s, want %s", name, got, want)
		}
	}
	for name, got := range map[string]string{
		"other nonce":   key(exact("0xA1", "0xae"), v1Terms),
		"other payer":   key(exact("0xA2", "0x"+nonce), v1Terms),
		"other asset":   key(exact("0xA1", "0x"+nonce), strings.Replace(v1Terms, "0xAA", "0xAB", 1)),
		"other network": key(exact("0xA1", "0x"+nonce), strings.Replace(v1Terms, "base", "polygon", 1)),
	} {
		if got == want {
			t.Errorf("%s: the same key", name)
		}
	}
}

// TestKeysOfOtherSchemes: what shows no payer and nonce is named by what was signed.
func TestKeysOfOtherSchemes(t *testing.T) {
	key := func(payload string) string {
		return facilitator.Payment{Payload: json.RawMessage(`{"payload":` + payload + `}`), Requirements: json.RawMessage(v2Terms)}.Key()
	}
	for one, same := range map[string]string{
		`{"transaction":"AQAB"}`: `{"note":1,"transaction":"AQAB"}`,
		`{"a":1,"b":[2]}`:        `{ "b":[2.0], "a":1 }`,
		`{"permit2Authorization":{"from":"0xA1","nonce":"12"}}`: `{"signature":"0x2","permit2Authorization":{"nonce":"0xc","from":"0xa1"}}`,
	} {
		if key(one) != key(same) {
			t.Errorf("%s and %s are two payments", one, same)
		}
	}
	seen := map[string]string{}
	for _, payload := range []string{
		`{"transaction":"AQAB"}`, `{"transaction":"aqab"}`, `{"a":1}`, `{"a":2}`, `null`,
		`{"permit2Authorization":{"from":"0xA1","nonce":"12"}}`, `{"permit2Authorization":{"from":"0xA1","nonce":"13"}}`,
	} {
		if other, is := seen[key(payload)]; is {
			t.Errorf("%s has the key of %s", payload, other)
		}
		seen[key(payload)] = payload
	}
}
