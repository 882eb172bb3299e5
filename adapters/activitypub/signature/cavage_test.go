package signature

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseCavage(t *testing.T) {
	cases := []struct {
		name, header string
		want         cavageSignature
	}{
		{
			"Mastodon", `keyId="https://m.example/users/a#main-key",algorithm="rsa-sha256",headers="(request-target) host date digest content-type",signature="AAA="`,
			cavageSignature{KeyID: "https://m.example/users/a#main-key", Algorithm: "rsa-sha256", Covered: []string{"(request-target)", "host", "date", "digest", "content-type"}, Signature: "AAA="},
		},
		{
			"Pleroma with blanks after commas", `keyId="k", headers="(request-target) host", signature="AAA="`,
			cavageSignature{KeyID: "k", Covered: []string{"(request-target)", "host"}, Signature: "AAA="},
		},
		{
			"comma in the key id", `keyId="https://m.example/a,b",signature="AAA=",headers="Date"`,
			cavageSignature{KeyID: "https://m.example/a,b", Covered: []string{"date"}, Signature: "AAA="},
		},
		{
			"numbers without quotes", `keyId="k",algorithm="hs2019",created=1402170695,expires=1402170699,headers="(created) (expires)",signature="AAA="`,
			cavageSignature{KeyID: "k", Algorithm: "hs2019", Covered: []string{"(created)", "(expires)"}, Signature: "AAA=", Created: 1402170695, Expires: 1402170699, HasCreated: true, HasExpires: true},
		},
		{
			"word in front, unknown parameter", `Signature keyId="k",opaque="x",signature="AAA="`,
			cavageSignature{KeyID: "k", Covered: []string{"date"}, Signature: "AAA="},
		},
		{
			"default of hs2019", `keyId="k",algorithm="hs2019",signature="AAA="`,
			cavageSignature{KeyID: "k", Algorithm: "hs2019", Covered: []string{"(created)"}, Signature: "AAA="},
		},
	}
	for _, c := range cases {
		got, err := parseCavage(c.header)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestParseCavageRefuses(t *testing.T) {
	for name, header := range map[string]string{
		"empty": ``, "no key": `signature="x"`, "no signature": `keyId="x"`, "open quote": `keyId="x`,
		"repeated": `keyId="x",keyId="y",signature="z"`, "comma at the end": `keyId="x",signature="y",`,
		"no comma": `keyId="x" signature="y"`, "no equals": `keyId`, "covers nothing": `keyId="x",headers=" ",signature="y"`,
		"created is no number": `keyId="x",created="soon",signature="y"`, "too long": `keyId="` + strings.Repeat("a", maxSignatureBytes) + `",signature="y"`,
		"covers too much": `keyId="x",headers="` + strings.Repeat("a ", maxCovered+1) + `",signature="y"`,
	} {
		if _, err := parseCavage(header); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzParseCavage(f *testing.F) {
	f.Add(`keyId="https://m.example/users/a#main-key",algorithm="rsa-sha256",headers="(request-target) host date digest",signature="AAA="`)
	f.Add(`Signature keyId="a,b", created=1 , signature="x"`)
	f.Add(`keyId=a,created=1,headers="(created) (expires) x,y authorization",expires=1.5,signature="x,headers=date"`)
	f.Fuzz(func(t *testing.T, header string) {
		s, err := parseCavage(header)
		if err != nil {
			return
		}
		if s.KeyID == "" || s.Signature == "" || len(s.Covered) == 0 || len(s.Covered) > maxCovered {
			t.Errorf("%q: accepted without a required part", header)
		}

		request := Request{Method: http.MethodPost, Target: "/inbox?a=b", Host: "inbox.example", Header: http.Header{}}
		for _, name := range s.Covered {
			if name == "signature" {
				return // nobody can sign the signature
			}
			request.Header[http.CanonicalHeaderKey(name)] = []string{name}
		}
		for text, right := range map[string]bool{s.signingString(request): true, s.signingString(request) + " ": false} {
			s.Signature = signText(text)
			if err := s.verify(request, libraryPublic()); (err == nil) != right {
				t.Errorf("%q: verified: %v, want right: %v", header, err, right)
			}
		}
	})
}

// TestBothVerifiersAgree verifies through httpsig and over our own signing string whatever the library can be given: the two
// must accept and refuse the same.
func TestBothVerifiersAgree(t *testing.T) {
	rsaKey := newKey(t)
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.StringMatching(`[a-z0-9%/.~-]{0,20}`)
		request := Request{
			Method: rapid.SampledFrom([]string{http.MethodPost, http.MethodGet}).Draw(t, "method"),
			Target: "/" + segment.Draw(t, "path") + rapid.StringMatching(`(\?[a-z0-9=&%/]{0,12})?`).Draw(t, "query"),
			Host:   "inbox.example",
			Header: http.Header{
				"Date": {"Sun, 06 Nov 1994 08:49:37 GMT"}, "Authorization": {"Bearer x"}, "X,a": {"1"},
				"X-A": rapid.SliceOfN(rapid.StringMatching(`[ -~]{0,8}`), 1, 3).Draw(t, "values"),
			},
		}
		s := cavageSignature{
			KeyID:   "k",
			Covered: rapid.SliceOfN(rapid.SampledFrom([]string{"(request-target)", "host", "date", "x-a", "x-absent"}), 1, 6).Draw(t, "covered"),
			Created: 1, HasCreated: rapid.Bool().Draw(t, "created"), Expires: 1, HasExpires: rapid.Bool().Draw(t, "expires"),
		}
		if !s.suitsLibrary() {
			t.Fatalf("%q does not suit the library", s.Covered)
		}

		edPublic, edPrivate, _ := ed25519.GenerateKey(nil)
		key, signed := crypto.PublicKey(edPublic), ed25519.Sign(edPrivate, []byte(s.signingString(request)))
		if rapid.Bool().Draw(t, "rsa") {
			sum := sha256.Sum256([]byte(s.signingString(request)))
			proof, err := rsa.SignPKCS1v15(nil, rsaKey, crypto.SHA256, sum[:])
			if err != nil {
				t.Fatal(err)
			}
			key, signed = &rsaKey.PublicKey, proof
		}
		switch rapid.SampledFrom([]string{"", "host", "target", "value", "signature"}).Draw(t, "tamper") {
		case "host":
			request.Host = "other.example"
		case "target":
			request.Target += "x"
		case "value":
			request.Header["X-A"] = append(request.Header["X-A"], "more")
		case "signature":
			signed[0] ^= 1
		}
		s.Signature = base64.StdEncoding.EncodeToString(signed)

		throughLibrary, direct := s.verifyByLibrary(request, key), verifyBytes(key, []byte(s.signingString(request)), signed)
		if slices.Contains(s.Covered, "x-absent") { // the policy refuses it before (checkCovered)
			direct = errWrongSignature
		}
		if (throughLibrary == nil) != (direct == nil) {
			t.Errorf("httpsig says %v, we say %v", throughLibrary, direct)
		}
		if err := s.verifyTarget(request, key); (err == nil) != (direct == nil) {
			t.Errorf("verified: %v, want %v", err, direct)
		}
	})
}

func TestWindow(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	cases := []struct {
		name          string
		made, expires time.Duration
		ok            bool
	}{
		{"now", 0, 0, true}, {"64 minutes old", -64 * time.Minute, 0, true}, {"66 minutes old", -66 * time.Minute, 0, false},
		{"59 minutes ahead", 59 * time.Minute, 0, true}, {"61 minutes ahead", 61 * time.Minute, 0, false},
		{"long life", -3 * time.Hour, 10 * time.Minute, true}, {"life over 12 hours", -14 * time.Hour, time.Hour, false},
	}
	for _, c := range cases {
		expires := time.Time{}
		if c.expires != 0 {
			expires = now.Add(c.expires)
		}
		if err := checkWindow(now.Add(c.made), expires, now); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestOurSignaturesVerify(t *testing.T) {
	key := newKey(t)
	for _, target := range []string{"https://peer.example/inbox", "https://peer.example/a%2Fb/inbox?x=%20y&z", "https://peer.example:8443/%C3%A9"} {
		body := []byte(`{"a":1}`)
		request, err := http.NewRequest(http.MethodPost, target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		request.Header.Set("Date", now.UTC().Format(http.TimeFormat))
		if err := SignCavage(request, body, "https://me.example/key", key, true); err != nil {
			t.Fatal(err)
		}
		seen := Request{
			Method: request.Method, Target: request.URL.RequestURI(), Host: request.URL.Host,
			Origin: "https://" + request.URL.Host, Header: request.Header, Body: body,
		}
		verifySeen(t, "draft-cavage", checkCavage, seen, now, &key.PublicKey)
		if !strings.Contains(request.Header.Get("Signature"), `algorithm="rsa-sha256"`) {
			t.Error("the announced algorithm is not rsa-sha256")
		}
		if want := signedByHand(t, key, seen.Target, seen.Host, request.Header.Get("Date")); request.Header.Get("Signature") != want {
			t.Errorf("%s: the header is\n%s, want\n%s", target, request.Header.Get("Signature"), want)
		}
		if err := SignMessage(request, body, "https://me.example/key", key, now); err != nil {
			t.Fatal(err)
		}
		verifySeen(t, "rfc9421", checkMessageSignature, seen, now, &key.PublicKey)
	}
}

// signedByHand returns the header that we send with the body {"a":1}.
func signedByHand(t *testing.T, key *rsa.PrivateKey, target, host, date string) string {
	t.Helper()
	sum := sha256.Sum256([]byte("(request-target): post " + target + "\nhost: " + host + "\ndate: " + date +
		"\ndigest: SHA-256=AVq9f1zFei3ZS3WQ8ErYCEJzkF7jPsXOvq5iJ2qX+GI="))
	proof, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return `keyId="https://me.example/key",algorithm="rsa-sha256",headers="(request-target) host date digest",signature="` +
		base64.StdEncoding.EncodeToString(proof) + `"`
}

func verifySeen(t *testing.T, scheme string, check func(Request, time.Time) (Claim, error), seen Request, now time.Time, key crypto.PublicKey) {
	t.Helper()
	signed, err := check(seen, now)
	if err != nil {
		t.Fatalf("%s: %v", scheme, err)
	}
	if err := signed.Verify(key); err != nil {
		t.Errorf("%s %s: %v", scheme, seen.Target, err)
	}
}
