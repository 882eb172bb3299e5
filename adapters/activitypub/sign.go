package activitypub

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"crypto"

	"github.com/go-fed/httpsig"

	"inbox/adapters/activitypub/document"
	"inbox/internal/signing"
)

// signCavage signs an outgoing request with draft-cavage: (request-target) host date, and digest with a body. The
// Date header must be set. content-type and user-agent stay uncovered: proxies and frameworks rewrite them.
func signCavage(request *http.Request, body []byte, keyID string, key *rsa.PrivateKey, withQuery bool) error {
	covered := []string{httpsig.RequestTarget, "host", "date"}
	if body != nil {
		covered = append(covered, "digest")
	}
	signer, _, err := httpsig.NewSigner([]httpsig.Algorithm{httpsig.RSA_SHA256}, httpsig.DigestSha256, covered, httpsig.Signature, 0)
	if err != nil {
		return fmt.Errorf("make signer: %w", err)
	}
	// httpsig signs the decoded path and wants Host in the header map, so it gets a stand-in of the request.
	target := request.URL.EscapedPath()
	if withQuery {
		target = request.URL.RequestURI()
	}
	stand := &http.Request{Method: request.Method, URL: opaqueTarget(target), Header: http.Header{
		"Host": {request.URL.Host}, "Date": request.Header["Date"],
	}}
	if err := signing.Do(func() error { return signer.SignRequest(key, keyID, stand, body) }); err != nil {
		return fmt.Errorf("sign request: %w", err)
	}
	// It always announces hs2019, which older servers refuse; the parameter itself is not signed.
	signature := strings.Replace(stand.Header.Get("Signature"), `algorithm="hs2019"`, `algorithm="rsa-sha256"`, 1)
	request.Header.Set("Signature", signature)
	if body != nil {
		request.Header["Digest"] = stand.Header["Digest"]
	}
	return nil
}

// signMessage signs an outgoing POST by RFC 9421 with the components that Mastodon and Fedify ask for.
func signMessage(request *http.Request, body []byte, keyID string, key *rsa.PrivateKey, now time.Time) error {
	sum := sha256.Sum256(body)
	digest := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	parameters := `("@method" "@target-uri" "@authority" "content-digest");created=` +
		strconv.FormatInt(now.Unix(), 10) + `;keyid="` + keyID + `";alg="rsa-v1_5-sha256"`
	base := `"@method": ` + request.Method + "\n" +
		`"@target-uri": ` + request.URL.Scheme + "://" + request.URL.Host + request.URL.RequestURI() + "\n" +
		`"@authority": ` + document.HostOf(request.URL.Scheme+"://"+request.URL.Host) + "\n" +
		`"content-digest": ` + digest + "\n" +
		`"@signature-params": ` + parameters
	hash := sha256.Sum256([]byte(base))
	var signature []byte
	err := signing.Do(func() (err error) {
		signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:])
		return err
	})
	if err != nil {
		return fmt.Errorf("sign request: %w", err)
	}
	request.Header.Set("Content-Digest", digest)
	request.Header.Set("Signature-Input", "sig1="+parameters)
	request.Header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(signature)+":")
	return nil
}
