package authentication

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"inbox/internal/signing"
)

// SignatureLife is how long a signature is valid. It limits replay and is longer than any retry schedule.
const SignatureLife = 14 * 24 * time.Hour

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

// Signer signs the mails of a domain.
type Signer struct {
	domain string
	keys   []Key
	names  []string // of h=
}

// NewSigner returns a signer with the keys, whose signatures also cover the additional fields.
func NewSigner(domain string, keys []Key, also ...string) *Signer {
	names := slices.Clone(signedFields)
	for _, name := range also {
		names = append(names, name, name)
	}
	return &Signer{domain: domain, keys: keys, names: names}
}

// Sign puts one DKIM-Signature for each key on top of a finished mail (RFC 6376, RFC 8463). Each call has its own signature
// time: to offer a mail again with the same bytes, keep them.
func (s *Signer) Sign(mail []byte) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(len(mail) + 2048)
	for _, key := range s.keys {
		field, err := s.field(mail, key)
		if err != nil {
			return nil, fmt.Errorf("sign mail: %w", err)
		}
		out.WriteString(field)
	}

	out.Write(mail)
	return out.Bytes(), nil
}

// field returns the DKIM-Signature of one key.
func (s *Signer) field(mail []byte, key Key) (string, error) {
	signer, err := dkim.NewSigner(&dkim.SignOptions{
		Domain: s.domain, Selector: key.Selector, Signer: boundedKey{key.Signer}, HeaderKeys: s.names, Expiration: time.Now().Add(SignatureLife),
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
	})
	if err != nil {
		return "", err
	}

	_, err = signer.Write(mail)
	if closed := signer.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", err
	}
	return signer.Signature(), nil
}

// boundedKey waits for a slot of package signing before each signature.
type boundedKey struct{ crypto.Signer }

func (k boundedKey) Sign(random io.Reader, digest []byte, options crypto.SignerOpts) (signature []byte, err error) {
	err = signing.Do(func() (err error) {
		signature, err = k.Signer.Sign(random, digest, options)
		return err
	})
	return signature, err
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
