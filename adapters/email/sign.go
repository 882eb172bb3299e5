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

	"inbox/identity"
	"inbox/internal/signing"
)

const (
	keyNamespace  = "email/dkim"
	keyName       = "rsa"
	keyBits       = 2048 // fits a DNS answer and is read by everybody
	signatureLife = 7 * 24 * time.Hour
	keyTimeout    = 30 * time.Second
)

// signedFields covers what a reader believes. A name that stands once more than the mail has it cannot be added
// afterwards (RFC 6376, section 8.15).
var signedFields = []string{
	"From", "From", "To", "Cc", "Subject", "Subject", "Date", "Date", "Message-ID", "In-Reply-To", "References",
	"Reply-To", "MIME-Version", "Content-Type", "Content-Type", "Content-Transfer-Encoding", "Auto-Submitted",
	chainField, chainField,
}

// DNSRecord gives the name and value of the TXT record that the operator publishes for a signing key. A value over
// 255 bytes is published in several strings (RFC 6376, section 3.6.2.2). domain may carry a port.
func DNSRecord(domain, selector string, key crypto.Signer) (name, value string) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "" // the key of LoadKey always encodes
	}
	return selector + "._domainkey." + identity.HostOf(domain), "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}

// DNSRecord gives the name and value of this adapter's own key record.
func (a *Adapter) DNSRecord() (name, value string) {
	return DNSRecord(a.domain, a.options.DKIMSelector, a.signer)
}

// LoadKey reads the key of keyFile, or without one the key that all nodes share; that one is made when it is missing.
func LoadKey(state KeyState, keyFile string) (crypto.Signer, error) {
	if keyFile != "" {
		text, err := os.ReadFile(keyFile)
		if err != nil {
			return nil, fmt.Errorf("mail.dkim_key_file: %w", err)
		}
		key, err := parseSigningKey(text)
		if err != nil {
			return nil, fmt.Errorf("mail.dkim_key_file %s: %w", keyFile, err)
		}
		return key, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	return sharedKey(ctx, state)
}

func sharedKey(ctx context.Context, state KeyState) (crypto.Signer, error) {
	stored, found, err := state.Get(ctx, keyNamespace, keyName)
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
	current, inserted, err := state.PutIfAbsent(ctx, keyNamespace, keyName, encoded, time.Time{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("store dkim key: %w", err)
	case inserted:
		return key, nil
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
	options := &dkim.SignOptions{
		Domain: a.domain, Selector: a.options.DKIMSelector, Signer: a.signer,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		HeaderKeys: signedFields, Expiration: time.Now().Add(signatureLife), // the library stamps t= from the same clock
	}
	err := signing.Do(func() error { return dkim.Sign(&out, bytes.NewReader(mail), options) })
	if err != nil {
		return nil, fmt.Errorf("sign mail: %w", err)
	}
	return out.Bytes(), nil
}
