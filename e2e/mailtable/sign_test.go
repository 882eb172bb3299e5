package mailtable

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"io"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"
)

func newReader(r io.Reader) *textproto.Reader { return textproto.NewReader(bufio.NewReader(r)) }

func weakKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0") // keys of 512 bits cannot be made otherwise
	key, err := rsa.GenerateKey(rand.Reader, 512)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func keyRecord(key *rsa.PrivateKey) string {
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic(err)
	}
	return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}

// librarySignature lets the library sign, which knows nothing of our verifier.
func librarySignature(t *testing.T, key crypto.Signer, domain, mail string) string {
	t.Helper()
	var out bytes.Buffer
	if err := dkim.Sign(&out, strings.NewReader(mail), &dkim.SignOptions{
		Domain: domain, Selector: "s1", Signer: key, HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// tagged is a signature with tags that the library would not write: everything up to bh= and b=, which are added. The
// canonicalization is relaxed for both halves.
type tagged struct {
	tags  string // such as "v=1; a=rsa-sha256; d={d}; s=s1; h=from:subject"
	field string // default DKIM-Signature
	body  string // what is hashed instead of the body, for l=
}

// sign puts the field on top. It is written from RFC 6376 alone, for mails as the table has them.
func (s tagged) sign(t *testing.T, key *rsa.PrivateKey, mail string) string {
	t.Helper()
	name := s.field
	if name == "" {
		name = "DKIM-Signature"
	}
	header, body, _ := strings.Cut(mail, "\r\n\r\n")
	if s.body != "" {
		body = s.body
	}
	sum := sha256.Sum256([]byte(relaxBody(body)))
	value := s.tags + "; c=relaxed/relaxed; bh=" + base64.StdEncoding.EncodeToString(sum[:]) + "; b="
	_, names, _ := strings.Cut(s.tags, "h=")
	names, _, _ = strings.Cut(names, ";")
	input := ""
	left := strings.Split(header, "\r\n")
	for wanted := range strings.SplitSeq(names, ":") {
		for i, line := range slices.Backward(left) {
			if field, _, _ := strings.Cut(line, ":"); strings.EqualFold(field, strings.TrimSpace(wanted)) {
				input += relaxField(line) + "\r\n"
				left = append(left[:i:i], left[i+1:]...)
				break
			}
		}
	}
	return name + ": " + value + signText(t, key, input+relaxField(name+": "+value)) + "\r\n" + mail
}

func signText(t *testing.T, key *rsa.PrivateKey, text string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature)
}

func relaxField(line string) string {
	name, value, _ := strings.Cut(line, ":")
	return strings.ToLower(strings.TrimSpace(name)) + ":" + strings.Join(strings.Fields(value), " ")
}

func relaxBody(body string) string {
	lines := strings.Split(body, "\r\n")
	for i, line := range lines {
		words := strings.Fields(line)
		if lines[i] = strings.Join(words, " "); len(words) > 0 && strings.TrimLeft(line, " \t") != line {
			lines[i] = " " + lines[i]
		}
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\r\n") + "\r\n"
}

// seal adds the first ARC set of a forwarder (RFC 8617).
func seal(t *testing.T, key *rsa.PrivateKey, sealer, results, mail string) string {
	t.Helper()
	recorded := "ARC-Authentication-Results: i=1; " + sealer + "; " + results
	signed := tagged{field: "ARC-Message-Signature", tags: "i=1; a=rsa-sha256; d=" + sealer + "; s=s1; h=from:to:subject:message-id"}.sign(t, key, mail)
	message, _, _ := strings.Cut(signed, "\r\n")
	stamp := "ARC-Seal: i=1; a=rsa-sha256; cv=none; d=" + sealer + "; s=s1; b="
	return stamp + signText(t, key, relaxField(recorded)+"\r\n"+relaxField(message)+"\r\n"+relaxField(stamp)) + "\r\n" + message + "\r\n" + recorded + "\r\n" + mail
}
