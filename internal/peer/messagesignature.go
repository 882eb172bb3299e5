package peer

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkMessageUnsigned checks everything about a request signed by RFC 9421 that needs no key: coverage, time and
// digest. It reads one signature and takes its parameters as they stand.
func checkMessageUnsigned(request *http.Request, body []byte, now time.Time) (requestSignature, error) {
	label, parameters, found := strings.Cut(request.Header.Get("Signature-Input"), "=")
	value, isBytes := strings.CutPrefix(request.Header.Get("Signature"), label+"=:")
	if !found || !isBytes {
		return requestSignature{}, errors.New("want one signature of RFC 9421")
	}

	raw, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(value, ":"))
	if err != nil {
		return requestSignature{}, fmt.Errorf("header Signature: %w", err)
	}

	list, rest, closed := strings.Cut(strings.TrimPrefix(parameters, "("), ")")
	if !closed {
		return requestSignature{}, fmt.Errorf("malformed Signature-Input %.200q", parameters)
	}

	signature := requestSignature{value: raw}
	for quoted := range strings.FieldsSeq(list) {
		signature.covered = append(signature.covered, strings.Trim(quoted, `"`))
	}

	if err := signature.readParameters(rest, now); err != nil {
		return requestSignature{}, err
	}

	for _, needed := range []string{"@method", "@target-uri", "content-digest"} {
		if !slices.Contains(signature.covered, needed) {
			return requestSignature{}, fmt.Errorf("the signature does not cover %s", needed)
		}
	}

	sum := sha256.Sum256(body)
	if want := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"; request.Header.Get("Content-Digest") != want {
		return requestSignature{}, errors.New("the Content-Digest header is not that of the body")
	}

	signature.base, err = messageBase(request, signature.covered, parameters)
	return signature, err
}

// readParameters reads ;created=1;keyid="…";alg="…".
func (s *requestSignature) readParameters(text string, now time.Time) error {
	var created time.Time
	for parameter := range strings.SplitSeq(strings.TrimPrefix(text, ";"), ";") {
		name, value, _ := strings.Cut(parameter, "=")
		switch name {
		case "created":
			seconds, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return fmt.Errorf("parameter created: %w", err)
			}
			created = time.Unix(seconds, 0)
		case "keyid":
			s.keyID = strings.Trim(value, `"`)
		case "alg":
			if value != `"rsa-v1_5-sha256"` {
				return fmt.Errorf("alg is %s", value)
			}
		}
	}

	if s.keyID == "" || now.Sub(created).Abs() > maxClockDifference {
		return errors.New("the signature has no keyid or was not made now")
	}

	return nil
}

// messageBase is the signature base of RFC 9421, section 2.5.
func messageBase(request *http.Request, covered []string, parameters string) (string, error) {
	var base strings.Builder
	for _, name := range covered {
		value := strings.Join(request.Header.Values(name), ", ")
		switch name {
		case "@method":
			value = request.Method
		case "@target-uri":
			value = "http://" + request.Host + request.RequestURI
		case "@authority", "host":
			value = request.Host
		}

		if value == "" {
			return "", fmt.Errorf("the signature covers the absent %s", name)
		}
		fmt.Fprintf(&base, "%q: %s\n", name, value)
	}

	return base.String() + `"@signature-params": ` + parameters, nil
}

// signMessage signs a request by RFC 9421 as Mastodon's newest version does.
func (k requestKey) signMessage(request *http.Request, body []byte) error {
	sum := sha256.Sum256(body)
	request.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	parameters := fmt.Sprintf(`("@method" "@target-uri" "content-digest");created=%d;keyid="%s"`, time.Now().Unix(), k.id)
	base := fmt.Sprintf("\"@method\": %s\n\"@target-uri\": %s\n\"content-digest\": %s\n\"@signature-params\": %s",
		request.Method, request.URL, request.Header.Get("Content-Digest"), parameters)
	hash := sha256.Sum256([]byte(base))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.private, crypto.SHA256, hash[:])
	if err != nil {
		return fmt.Errorf("sign request: %w", err)
	}

	request.Header.Set("Signature-Input", "sig1="+parameters)
	request.Header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(signature)+":")
	return nil
}
