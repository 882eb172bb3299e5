package signature

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-fed/httpsig"
)

// The tests TestLibrary… show what go-fed/httpsig v1.1.0 gets wrong, each on the library itself. One that fails after an upgrade says that the
// library has been mended: the code that names the test can go.

var libraryKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func libraryPublic() ed25519.PublicKey { return libraryKey.Public().(ed25519.PublicKey) }

// signText returns the base64 of the signature of a text.
func signText(text string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(libraryKey, []byte(text)))
}

const oldDate = "Sun, 06 Nov 1994 08:49:37 GMT"

// wireRequest returns a POST to /inbox of inbox.example as net/http hands it to a handler.
func wireRequest(signature string) *http.Request {
	return &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/inbox"}, Host: "inbox.example",
		Header: http.Header{"Date": {oldDate}, "Signature": {signature}},
	}
}

// libraryVerdict is what go-fed/httpsig says of a request.
func libraryVerdict(request *http.Request) error {
	verifier, err := httpsig.NewVerifier(request)
	if err != nil {
		return err
	}
	return verifier.Verify(libraryPublic(), httpsig.ED25519)
}

func TestLibrarySplitsValuesAtCommas(t *testing.T) {
	good := signText("date: " + oldDate)
	if err := libraryVerdict(wireRequest(`keyId="https://m.example/a",headers="date",signature="` + good + `"`)); err != nil {
		t.Fatalf("without a comma: %v", err)
	}
	if libraryVerdict(wireRequest(`keyId="https://m.example/a,b",headers="date",signature="`+good+`"`)) == nil {
		t.Error("a comma in the key id is read")
	}

	request := wireRequest(`keyId="k",headers="date x,y",signature="` + signText("date: "+oldDate+"\nx,y: 1") + `"`)
	request.Header["x,y"] = []string{"1"}
	if libraryVerdict(request) == nil {
		t.Error("a comma in the name of a header is read")
	}
	if err := ourVerdict(request); err != nil {
		t.Error(err)
	}

	if err := libraryVerdict(wireRequest(smuggled(good))); err != nil {
		t.Errorf("parameters inside the value of signature are not read: %v", err)
	}
}

// smuggled is a Signature header whose parameter signature holds further parameters, with which go-fed/httpsig replaces those before it.
func smuggled(signature string) string {
	return `keyId="https://m.example/a",headers="(request-target) host date",signature="AAAA,headers=date,signature=` + signature + `"`
}

// TestSignatureBringsNoParameters: a signature that covers only the date is refused, although its value contains a parameter that names other
// headers.
func TestSignatureBringsNoParameters(t *testing.T) {
	s, err := parseCavage(smuggled(signText("date: " + oldDate)))
	if err != nil {
		t.Fatal(err)
	}
	request := Request{Method: http.MethodPost, Target: "/inbox", Host: "inbox.example", Header: http.Header{"Date": {oldDate}}}
	if s.verify(request, libraryPublic()) == nil {
		t.Error("a signature over the date alone verifies as one over the target")
	}
}

func TestLibraryReadsOneSpelling(t *testing.T) {
	good := signText("(request-target): post /inbox\nhost: inbox.example\ndate: " + oldDate)
	for name, header := range map[string]string{
		"blanks after commas":      `keyId="k", headers="(request-target) host date", signature="` + good + `"`,
		"blank before an equals":   `keyId ="k",headers="(request-target) host date",signature="` + good + `"`,
		"blank after an equals":    `keyId="k",headers= "(request-target) host date",signature="` + good + `"`,
		"two blanks between names": `keyId="k",headers="(request-target)  host date",signature="` + good + `"`,
		"word in front":            `Signature keyId="k",headers="(request-target) host date",signature="` + good + `"`,
		"decimal expires":          `keyId="k",expires=99999999999.5,headers="(request-target) host date",signature="` + good + `"`,
	} {
		request := wireRequest(header)
		if libraryVerdict(request) == nil {
			t.Errorf("%s: the library reads it", name)
		}
		if err := ourVerdict(request); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ourVerdict is what this package says of the same request, without its policy of coverage, digest and time.
func ourVerdict(request *http.Request) error {
	s, err := parseCavage(request.Header.Get("Signature"))
	if err != nil {
		return err
	}
	return s.verify(Request{Method: request.Method, Target: request.URL.EscapedPath(), Host: request.Host, Header: request.Header}, libraryPublic())
}

func TestLibrarySignsTheDecodedPath(t *testing.T) {
	request, err := http.NewRequest(http.MethodPost, "https://peer.example/a%2Fb", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	signer, _, err := httpsig.NewSigner([]httpsig.Algorithm{httpsig.ED25519}, httpsig.DigestSha256, []string{httpsig.RequestTarget}, httpsig.Signature, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := signer.SignRequest(libraryKey, "k", request, nil); err != nil {
		t.Fatal(err)
	}
	if header := request.Header.Get("Signature"); !strings.Contains(header, signText("(request-target): post /a/b")) {
		t.Errorf("the path is signed as received: %s", header)
	}

	request.Header.Set("Signature", `keyId="k",headers="(request-target)",signature="`+signText("(request-target): post /a%2Fb")+`"`)
	if libraryVerdict(request) == nil {
		t.Error("the path is verified as received")
	}
	if err := ourVerdict(request); err != nil {
		t.Error(err)
	}
}

// TestLibraryJudgesTimesByItsOwnClock shows that created may be no more than 10 s ahead and expires no more than 10 s ago, by time.Now and
// whether they are covered or not. The network allows an hour.
func TestLibraryJudgesTimesByItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, ahead := range map[string]time.Duration{"created": 11 * time.Second, "expires": -11 * time.Second} {
			at := time.Now().Add(ahead).Unix()
			covered := wireRequest(fmt.Sprintf(`keyId="k",algorithm="hs2019",%s=%d,headers="date (%s)",signature="%s"`,
				name, at, name, signText(fmt.Sprintf("date: %s\n(%s): %d", oldDate, name, at))))
			uncovered := wireRequest(fmt.Sprintf(`keyId="k",%s=%d,headers="date",signature="%s"`, name, at, signText("date: "+oldDate)))

			for _, request := range []*http.Request{covered, uncovered} {
				if libraryVerdict(request) == nil {
					t.Errorf("%s: the library accepts %s", name, request.Header.Get("Signature"))
				}
				if err := ourVerdict(request); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			<-time.NewTimer(22 * time.Second).C // the bubble's clock
			if err := libraryVerdict(covered); name == "created" && err != nil {
				t.Errorf("the library has another clock: %v", err)
			}
		}
	})
}

func TestLibraryMistakesAuthorizationForTheSignature(t *testing.T) {
	text := "date: " + oldDate + "\nauthorization: Bearer signature"
	request := wireRequest(`keyId="k",headers="date authorization",signature="` + signText(text) + `"`)
	request.Header.Set("Authorization", "Bearer signature")
	if libraryVerdict(request) == nil {
		t.Error("the library reads the Signature header alone")
	}
	if err := ourVerdict(request); err != nil {
		t.Error(err)
	}
}

func TestLibraryTakesTheLastOfRepeatedParameters(t *testing.T) {
	header := `keyId="k",headers="(request-target) host date",headers="date",signature="` + signText("date: "+oldDate) + `"`
	if err := libraryVerdict(wireRequest(header)); err != nil {
		t.Errorf("the library refuses a repeated parameter: %v", err)
	}
	if _, err := parseCavage(header); err == nil {
		t.Error("we accept a repeated parameter")
	}
}

func TestLibraryTakesTheFirstOfSeveralHeaders(t *testing.T) {
	request := wireRequest(`keyId="k",headers="date",signature="` + signText("date: "+oldDate) + `"`)
	request.Header.Add("Signature", `keyId="other",headers="date",signature="AAAA"`)
	if err := libraryVerdict(request); err != nil {
		t.Errorf("the library refuses a second Signature header: %v", err)
	}
	refusedHere(t, request, nil, "want exactly one Signature header")
}

// refusedHere demands that the policy refuses a request with an error.
func refusedHere(t *testing.T, request *http.Request, body []byte, want string) {
	t.Helper()
	made, err := http.ParseTime(oldDate)
	if err != nil {
		t.Fatal(err)
	}
	seen := Request{Method: request.Method, Target: request.URL.EscapedPath(), Host: request.Host, Header: request.Header, Body: body}
	if _, err := checkCavage(seen, made); err == nil || err.Error() != want {
		t.Errorf("our policy says %v, want %s", err, want)
	}
}

func TestLibraryIgnoresTheAlgorithm(t *testing.T) {
	request := wireRequest(`keyId="k",algorithm="hmac-sha256",headers="date",signature="` + signText("date: "+oldDate) + `"`)
	if err := libraryVerdict(request); err != nil {
		t.Errorf("the library refuses an algorithm: %v", err)
	}
	refusedHere(t, request, nil, "signature algorithm is not supported: use rsa-sha256 or hs2019")
}

func TestLibraryAcceptsAnyCoverage(t *testing.T) {
	request := wireRequest(`keyId="k",headers="date",signature="` + signText("date: "+oldDate) + `"`)
	if err := libraryVerdict(request); err != nil {
		t.Errorf("the library refuses a signature over the date alone: %v", err)
	}
	refusedHere(t, request, nil, "signature must cover (request-target)")

	verifier, err := httpsig.NewVerifier(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, says := verifier.(interface{ Headers() []string }); says {
		t.Error("the library says what is covered")
	}
}

func TestLibraryComparesNoDigest(t *testing.T) {
	digest := "SHA-256=" + base64.StdEncoding.EncodeToString(make([]byte, sha256.Size))
	text := "(request-target): post /inbox\nhost: inbox.example\ndate: " + oldDate + "\ndigest: " + digest
	request := wireRequest(`keyId="k",headers="(request-target) host date digest",signature="` + signText(text) + `"`)
	request.Header.Set("Digest", digest)
	if err := libraryVerdict(request); err != nil {
		t.Errorf("the library compares the digest: %v", err)
	}
	refusedHere(t, request, []byte("another body"), "digest does not match the body")
}

func TestLibraryAcceptsOldDates(t *testing.T) {
	digest := "SHA-256=" + base64.StdEncoding.EncodeToString(sum256("body"))
	text := "(request-target): post /inbox\nhost: inbox.example\ndate: Sat, 01 Jan 1994 00:00:00 GMT\ndigest: " + digest
	request := wireRequest(`keyId="k",headers="(request-target) host date digest",signature="` + signText(text) + `"`)
	request.Header.Set("Digest", digest)
	request.Header.Set("Date", "Sat, 01 Jan 1994 00:00:00 GMT")
	if err := libraryVerdict(request); err != nil {
		t.Errorf("the library refuses an old date: %v", err)
	}
	refusedHere(t, request, []byte("body"), errTimePast)
}

func sum256(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

func TestLibraryMissesAbsentHeadersUntilItHasTheKey(t *testing.T) {
	request := wireRequest(`keyId="k",headers="(request-target) host date digest x-a",signature="AAAA"`)
	request.Header.Set("Digest", "x")
	if _, err := httpsig.NewVerifier(request); err != nil {
		t.Errorf("the library refuses a request without a covered header: %v", err)
	}
	refusedHere(t, request, nil, "signature covers a header that is absent: x-a")
}

func TestLibraryPanicsOnShortKeys(t *testing.T) {
	request := wireRequest(`keyId="k",headers="date",signature="` + signText("date: "+oldDate) + `"`)
	verifier, err := httpsig.NewVerifier(request)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the library does not panic")
			}
		}()
		_ = verifier.Verify(libraryPublic()[:31], httpsig.ED25519)
	}()

	s := cavageSignature{KeyID: "k", Covered: []string{"date"}, Signature: signText("date: " + oldDate)}
	seen := Request{Method: http.MethodPost, Target: "/inbox", Host: "inbox.example", Header: request.Header}
	for _, key := range []crypto.PublicKey{libraryPublic()[:31], ed25519.PublicKey(nil), nil, "key", rsa.PublicKey{}} {
		if s.verify(seen, key) == nil {
			t.Errorf("%T: verifies", key)
		}
	}
}

func TestLibraryWritesHostIntoTheHeader(t *testing.T) {
	request := wireRequest(`keyId="k",headers="date",signature="` + signText("date: "+oldDate) + `"`)
	if _, err := httpsig.NewVerifier(request); err != nil {
		t.Fatal(err)
	}
	if request.Header.Get("Host") == "" {
		t.Error("the library leaves the header as it is")
	}

	request.Header.Del("Host")
	if err := ourVerdict(request); err != nil {
		t.Fatal(err)
	}
	if request.Header.Get("Host") != "" || len(request.Header) != 2 {
		t.Errorf("we wrote into the header: %v", request.Header)
	}
}

func TestLibraryAnnouncesHS2019(t *testing.T) {
	signer, _, err := httpsig.NewSigner([]httpsig.Algorithm{httpsig.RSA_SHA256}, httpsig.DigestSha256, []string{"date"}, httpsig.Signature, 0)
	if err != nil {
		t.Fatal(err)
	}
	request := wireRequest("")
	request.Header.Del("Signature")
	if err := signer.SignRequest(newKey(t), "k", request, nil); err != nil {
		t.Fatal(err)
	}
	if header := request.Header.Get("Signature"); !strings.Contains(header, `algorithm="hs2019"`) {
		t.Errorf("the library announces another algorithm: %s", header)
	}
}
