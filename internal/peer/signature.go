package peer

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// requestKey signs requests the way Mastodon does (draft-cavage-http-signatures-12 with RSA and SHA-256).
type requestKey struct {
	id      string
	private *rsa.PrivateKey
}

// sign puts Date, Digest (with a body) and Signature into the request. It must be the last change to it.
func (k requestKey) sign(request *http.Request, body []byte) error {
	return k.signAt(request, body, time.Now())
}

// signAt is sign with the time at which the request says that it was signed.
func (k requestKey) signAt(request *http.Request, body []byte, at time.Time) error {
	covered := []string{"(request-target)", "host", "date"}
	request.Header.Set("Date", at.UTC().Format(http.TimeFormat))

	if body != nil {
		request.Header.Set("Digest", bodyDigest(body))
		covered = append(covered, "digest")
	}

	text, err := signingString(request, request.URL.RequestURI(), request.URL.Host, covered)
	if err != nil {
		return err
	}

	hash := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.private, crypto.SHA256, hash[:])
	if err != nil {
		return fmt.Errorf("sign request: %w", err)
	}

	request.Header.Set("Signature", fmt.Sprintf(`keyId="%s",algorithm="rsa-sha256",headers="%s",signature="%s"`,
		k.id, strings.Join(covered, " "), base64.StdEncoding.EncodeToString(signature)))
	return nil
}

func bodyDigest(body []byte) string {
	sum := sha256.Sum256(body)
	return "SHA-256=" + base64.StdEncoding.EncodeToString(sum[:])
}

// requestSignature is a parsed Signature header.
type requestSignature struct {
	keyID   string
	covered []string
	value   []byte
	base    string // of RFC 9421; empty = draft-cavage
}

// maxClockDifference is Fedify's window for the Date of a request; Mastodon's is wider.
const maxClockDifference = time.Hour

// checkUnsigned checks everything about a received request that needs no key: coverage, date and digest.
func checkUnsigned(request *http.Request, body []byte, now time.Time) (requestSignature, error) {
	signature, err := parseSignature(request.Header.Get("Signature"))
	if err != nil {
		return requestSignature{}, err
	}

	needed := []string{"(request-target)", "host", "date"}
	if request.Method != http.MethodGet {
		needed = append(needed, "digest")
	}

	for _, needed := range needed {
		if !slices.Contains(signature.covered, needed) {
			return requestSignature{}, fmt.Errorf("the signature does not cover %s", needed)
		}
	}

	date, err := http.ParseTime(request.Header.Get("Date"))
	if err != nil {
		return requestSignature{}, fmt.Errorf("header Date: %w", err)
	}
	if now.Sub(date).Abs() > maxClockDifference {
		return requestSignature{}, fmt.Errorf("the Date %s is not now", date.Format(time.RFC3339))
	}
	if request.Method != http.MethodGet && subtle.ConstantTimeCompare([]byte(request.Header.Get("Digest")), []byte(bodyDigest(body))) != 1 {
		return requestSignature{}, errors.New("the Digest header is not that of the body")
	}

	return signature, nil
}

// check verifies the signature of a received request with the key.
func (s requestSignature) check(request *http.Request, key *rsa.PublicKey) error {
	text, err := s.base, error(nil)
	if text == "" {
		text, err = signingString(request, request.RequestURI, request.Host, s.covered)
	}
	if err != nil {
		return err
	}

	hash := sha256.Sum256([]byte(text))
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, hash[:], s.value); err != nil {
		return fmt.Errorf("the signature of %s does not verify: %w", s.keyID, err)
	}
	return nil
}

// signingString is section 2.3 of the draft.
func signingString(request *http.Request, target, host string, covered []string) (string, error) {
	lines := make([]string, 0, len(covered))
	for _, name := range covered {
		value := strings.Join(request.Header.Values(name), ", ")
		switch name {
		case "(request-target)":
			value = strings.ToLower(request.Method) + " " + target
		case "host":
			value = host
		}

		if value == "" {
			return "", fmt.Errorf("the signature covers the absent header %s", name)
		}
		lines = append(lines, name+": "+value)
	}

	return strings.Join(lines, "\n"), nil
}

func parseSignature(header string) (requestSignature, error) {
	if header == "" {
		return requestSignature{}, errors.New("no Signature header")
	}

	fields := make(map[string]string)
	for rest := header; rest != ""; {
		name, after, found := strings.Cut(rest, `="`)
		value, more, closed := strings.Cut(after, `"`)
		if !found || !closed {
			return requestSignature{}, fmt.Errorf("malformed Signature header %.200q", header)
		}
		fields[strings.TrimSpace(name)] = value
		rest = strings.TrimLeft(more, ", ")
	}

	value, err := base64.StdEncoding.DecodeString(fields["signature"])
	if err != nil || len(value) == 0 || fields["keyId"] == "" {
		return requestSignature{}, errors.New("header Signature without keyId or signature")
	}

	return requestSignature{keyID: fields["keyId"], covered: strings.Fields(fields["headers"]), value: value}, nil
}
