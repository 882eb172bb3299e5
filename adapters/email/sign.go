package email

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

const (
	keyNamespace  = "email/dkim"
	keyBits       = 2048 // fits a DNS answer and is read by everybody
	signatureLife = 7 * 24 * time.Hour
	keyTimeout    = 30 * time.Second
)

// signedFields covers what a reader believes. A name that stands once more than the mail has it cannot be added
// afterwards (RFC 6376, section 8.15).
var signedFields = []string{
	"From", "From", "To", "Cc", "Subject", "Subject", "Date", "Date", "Message-ID", "In-Reply-To", "References",
	"Reply-To", "MIME-Version", "Content-Type", "Content-Type", "Content-Transfer-Encoding", "Auto-Submitted",
}

// Record is a DNS record that the operator publishes.
type Record struct{ Name, Type, Value string }

// DNSRecord gives the DKIM key record of this server. A TXT value over 255 bytes is published in several strings.
func (a *Adapter) DNSRecord() Record {
	der, err := x509.MarshalPKIXPublicKey(a.signer.Public())
	if err != nil {
		return Record{} // an *rsa.PublicKey always encodes
	}
	return Record{
		Name: a.options.DKIMSelector + "._domainkey." + a.domain, Type: "TXT",
		Value: "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der),
	}
}

// loadKey reads the configured key, or the stored one, or makes one that all nodes then share.
func (a *Adapter) loadKey() (crypto.Signer, error) {
	if path := a.options.DKIMKeyFile; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("mail.dkim_key_file: %w", err)
		}
		key, err := parseSigningKey(text)
		if err != nil {
			return nil, fmt.Errorf("mail.dkim_key_file %s: %w", path, err)
		}
		return key, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	return a.sharedKey(ctx)
}

func (a *Adapter) sharedKey(ctx context.Context) (crypto.Signer, error) {
	name := a.options.DKIMSelector + "._domainkey." + a.domain
	stored, found, err := a.options.State.Get(ctx, keyNamespace, name)
	if err != nil {
		return nil, fmt.Errorf("load dkim key: %w", err)
	}
	if found {
		return parseSigningKey(stored)
	}
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, fmt.Errorf("make dkim key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode dkim key: %w", err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	// Of several nodes that start together one wins, and all use its key.
	current, _, err := a.options.State.PutIfAbsent(ctx, keyNamespace, name, encoded, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("store dkim key: %w", err)
	}
	return parseSigningKey(current)
}

var errNoRSA = errors.New("want a PEM block with an RSA private key of at least 1024 bits (PKCS#1 or PKCS#8)")

func parseSigningKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errNoRSA
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return checkedKey(key)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errNoRSA
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, errNoRSA
	}
	return checkedKey(key)
}

func checkedKey(key *rsa.PrivateKey) (crypto.Signer, error) {
	if key.N.BitLen() < 1024 {
		return nil, errNoRSA
	}
	return key, nil
}

// sign puts a DKIM-Signature on top of a finished mail.
func (a *Adapter) sign(mail []byte) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(len(mail) + 1024)
	err := dkim.Sign(&out, bytes.NewReader(mail), &dkim.SignOptions{
		Domain: a.domain, Selector: a.options.DKIMSelector, Signer: a.signer,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		HeaderKeys: signedFields, Expiration: time.Now().Add(signatureLife), // the library stamps t= from the same clock
	})
	if err != nil {
		return nil, fmt.Errorf("sign mail: %w", err)
	}
	return out.Bytes(), nil
}
