package webhooksignature_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
	"inbox/internal/webhooksignature"
)

func TestRecordedSignatures(t *testing.T) {
	fixturetest.Run(t, "webhook-signature", func(c fixturetest.Case) (any, error) {
		input, options := c.Object(), value.Assoc(c.Object()["options"])
		prefix, given := options["expected_prefix"].(string)
		form := webhooksignature.Form{Prefix: prefix, NoPrefix: given && prefix == "", AllowRawHex: value.Flag(options["allow_raw_hex"])}
		body, header := value.Scalar(input["body"]), value.Scalar(input["header"])
		return webhooksignature.Verify(value.Scalar(input["secret"]), []byte(body), header, form), nil
	})
}

func TestSignatures(t *testing.T) {
	body, ours := []byte("body"), webhooksignature.Sign("s", []byte("body"))
	digest := strings.TrimPrefix(ours, webhooksignature.Prefix)
	for name, test := range map[string]struct {
		secret, header string
		form           webhooksignature.Form
		verdict        bool
	}{
		"ours":                            {"s", ours, webhooksignature.Form{}, true},
		"spaces around":                   {"s", " sha256= " + digest + "\n", webhooksignature.Form{}, true},
		"capital digits":                  {"s", "sha256=" + strings.ToUpper(digest), webhooksignature.Form{}, true},
		"capital prefix":                  {"s", "SHA256=" + digest, webhooksignature.Form{}, false},
		"another secret":                  {"t", ours, webhooksignature.Form{}, false},
		"empty secret":                    {"", webhooksignature.Sign("", body), webhooksignature.Form{}, false},
		"nothing":                         {"s", "", webhooksignature.Form{AllowRawHex: true}, false},
		"raw":                             {"s", digest, webhooksignature.Form{}, false},
		"raw where allowed":               {"s", digest, webhooksignature.Form{AllowRawHex: true}, true},
		"other prefix":                    {"s", "v0=" + digest, webhooksignature.Form{Prefix: "v0="}, true},
		"our prefix where raw is allowed": {"s", ours, webhooksignature.Form{Prefix: "v0=", AllowRawHex: true}, false},
		"no prefix":                       {"s", digest, webhooksignature.Form{NoPrefix: true}, false},
		"no prefix and raw":               {"s", digest, webhooksignature.Form{NoPrefix: true, AllowRawHex: true}, true},
		"no prefix but ours there":        {"s", ours, webhooksignature.Form{NoPrefix: true, AllowRawHex: true}, false},
		"too long":                        {"s", ours + "00", webhooksignature.Form{}, false},
		"no digits":                       {"s", "sha256=" + strings.Repeat("x", 64), webhooksignature.Form{}, false},
		"a list":                          {"s", ours + ", " + ours, webhooksignature.Form{}, false},
	} {
		if got := webhooksignature.Verify(test.secret, body, test.header, test.form); got != test.verdict {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRotatingSignatures(t *testing.T) {
	body := []byte("body")
	sign := func(secrets ...string) string {
		var list []string
		for _, secret := range secrets {
			list = append(list, webhooksignature.Sign(secret, body))
		}
		return strings.Join(list, ", ")
	}
	for name, test := range map[string]struct {
		secrets []string
		header  string
		verdict bool
	}{
		"a receiver with the old one":      {[]string{"old"}, sign("new", "old"), true},
		"a receiver with the new one":      {[]string{"new"}, sign("new", "old"), true},
		"a receiver with both, old sender": {[]string{"new", "old"}, sign("old"), true},
		"neither":                          {[]string{"other", ""}, sign("new", "old", ""), false},
		"nobody":                           {nil, sign("new"), false},
		"empty elements":                   {[]string{"new"}, ", ," + sign("new"), true},
		"the fourth":                       {[]string{"d"}, sign("a", "b", "c", "d"), true},
		"the fifth is not read":            {[]string{"e"}, sign("a", "b", "c", "d", "e"), false},
	} {
		if got := webhooksignature.VerifyRotating(test.secrets, body, test.header, webhooksignature.Form{}); got != test.verdict {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzVerifySignature(f *testing.F) {
	f.Add("s", []byte("b"), webhooksignature.Sign("s", []byte("b")), "", false)
	f.Add("s", []byte{}, "sha256=,sha256=\xff", "v0=", true)
	f.Add("", []byte("b"), webhooksignature.Sign("", []byte("b")), "sha256=", true)
	f.Fuzz(func(t *testing.T, secret string, body []byte, header, prefix string, raw bool) {
		form := webhooksignature.Form{Prefix: prefix, NoPrefix: prefix == "", AllowRawHex: raw}
		verified := webhooksignature.Verify(secret, body, header, form)
		digest, err := hex.DecodeString(strings.TrimPrefix(webhooksignature.Sign(secret, body), webhooksignature.Prefix))
		if err != nil || verified && !strings.Contains(strings.ToLower(header), hex.EncodeToString(digest)) {
			t.Fatal("verified without the digest", err)
		}
		if one := !strings.Contains(header, ",") && !strings.Contains(prefix, ","); one && verified != webhooksignature.VerifyRotating([]string{secret}, body, header, form) {
			t.Fatal("one signature is another than a list of one")
		}
		if verified && secret == "" {
			t.Fatal("an empty secret verified")
		}
	})
}

func TestOwnSignaturesVerify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret, body := rapid.StringN(1, 40, -1).Draw(t, "secret"), rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		if !webhooksignature.Verify(secret, body, webhooksignature.Sign(secret, body), webhooksignature.Form{}) {
			t.Fatal("ours does not verify")
		}
		if webhooksignature.Verify(secret, append(body, 0), webhooksignature.Sign(secret, body), webhooksignature.Form{}) {
			t.Fatal("another body verifies")
		}
	})
}
