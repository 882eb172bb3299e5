package authentication

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/email/message"
	"inbox/internal/signing"
)

// SignatureEpoch is the step in which the time of a signature moves: within it a repeat has the same bytes.
const SignatureEpoch = 7 * 24 * time.Hour

// signatureLife limits replay, and outlasts every schedule of repeats.
const signatureLife = 14 * 24 * time.Hour

// signedFields covers what a reader believes. A field that is named once more than the mail has it cannot be added
// afterwards (RFC 6376, section 8.15).
var signedFields = []string{
	"From", "From", "To", "To", "Cc", "Cc", "Subject", "Subject", "Date", "Date", "Message-ID", "Message-ID",
	"In-Reply-To", "In-Reply-To", "References", "References", "Reply-To", "Sender", "MIME-Version", "MIME-Version",
	"Content-Type", "Content-Type", "Content-Transfer-Encoding", "Content-Transfer-Encoding", "Auto-Submitted", "Auto-Submitted",
	"List-Unsubscribe", "List-Unsubscribe", "List-Unsubscribe-Post", "List-Unsubscribe-Post",
}

// Key is one key with the name under which it is published.
type Key struct {
	Selector string
	Signer   crypto.Signer
}

func (k Key) algorithm() string {
	if _, is := k.Signer.Public().(ed25519.PublicKey); is {
		return "ed25519-sha256"
	}
	return "rsa-sha256"
}

// Signer signs the mails of a domain.
type Signer struct {
	domain string
	keys   []Key
	names  []string // of h=
	now    func() time.Time
}

// NewSigner returns a signer with the keys, whose signatures cover also the fields that are named in addition.
func NewSigner(domain string, keys []Key, now func() time.Time, also ...string) *Signer {
	names := slices.Clone(signedFields)
	for _, name := range also {
		names = append(names, name, name)
	}
	return &Signer{domain: domain, keys: keys, names: names, now: now}
}

// Sign puts one DKIM-Signature for each key on top of a finished mail (RFC 6376, RFC 8463). The time of the signature
// follows from when the mail was written, and both algorithms are deterministic: a repeat has the same bytes, even after
// a crash. That is why the signer of the library, which stamps the time itself, is not used.
func (s *Signer) Sign(mail []byte, written time.Time) ([]byte, error) {
	fields, body, err := message.Split(mail)
	if err != nil {
		return nil, fmt.Errorf("sign mail: %w", err)
	}

	at := signatureTime(written, s.now())
	digest := hashBody(body, true)
	var out bytes.Buffer
	out.Grow(len(mail) + 2048)
	for _, key := range s.keys {
		field := s.field(key, at, digest[:])
		value, err := s.sum(key, fields, field)
		if err != nil {
			return nil, fmt.Errorf("sign mail: %w", err)
		}
		out.WriteString(field + foldBase64(value) + "\r\n")
	}

	out.Write(mail)
	return out.Bytes(), nil
}

// signatureTime is the same for all attempts within some days.
func signatureTime(written, now time.Time) time.Time {
	if written.IsZero() || written.After(now) {
		return now
	}
	return written.Add(now.Sub(written).Truncate(SignatureEpoch))
}

// field is the field up to its value b=.
func (s *Signer) field(key Key, at time.Time, digest []byte) string {
	var names strings.Builder
	width := 0
	for i, name := range s.names {
		if i > 0 {
			names.WriteString(":")
		}
		if width += len(name) + 1; width > 70 {
			names.WriteString("\r\n\t ")
			width = len(name)
		}
		names.WriteString(name)
	}

	return "DKIM-Signature: v=1; a=" + key.algorithm() + "; c=relaxed/relaxed; d=" + s.domain + ";\r\n\ts=" + key.Selector +
		"; t=" + strconv.FormatInt(at.Unix(), 10) + "; x=" + strconv.FormatInt(at.Add(signatureLife).Unix(), 10) +
		";\r\n\th=" + names.String() + ";\r\n\tbh=" + base64.StdEncoding.EncodeToString(digest) + ";\r\n\tb="
}

// sum signs the fields of h=, from the lowest instance upwards, and the signature field itself (RFC 6376,
// section 3.7).
func (s *Signer) sum(key Key, fields message.Header, own string) (signature []byte, err error) {
	hash := sha256.New()
	newFieldPicker(fields).write(hash, s.names, true)
	var field bytes.Buffer
	writeField(&field, []byte(own), true)
	_, _ = hash.Write(bytes.TrimSuffix(field.Bytes(), []byte("\r\n")))
	digest, algorithm := hash.Sum(nil), crypto.SHA256
	if key.algorithm() != "rsa-sha256" {
		algorithm = crypto.Hash(0) // RFC 8463, section 3: the digest itself is what is signed
	}

	err = signing.Do(func() (err error) {
		signature, err = key.Signer.Sign(nil, digest, algorithm)
		return err
	})

	return signature, err
}

func foldBase64(value []byte) string {
	text := base64.StdEncoding.EncodeToString(value)
	var out strings.Builder
	for len(text) > 72 {
		out.WriteString(text[:72] + "\r\n\t ")
		text = text[72:]
	}
	return out.String() + text
}

// KeyRecord returns the name and value of the TXT record that the operator publishes for a signing key. A value over
// 255 bytes is published in several strings (RFC 6376, section 3.6.2.2).
func KeyRecord(domain, selector string, key crypto.Signer) (name, value string) {
	name = selector + "._domainkey." + domain
	if public, is := key.Public().(ed25519.PublicKey); is {
		return name, "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public) // RFC 8463, section 4.2
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "" // the key of LoadKey always encodes
	}
	return name, "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}
