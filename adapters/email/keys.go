package email

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"inbox/adapters/email/authentication"
	"inbox/identity"
)

// KeyNamespace is that of the documents with the private keys of this adapter.
const KeyNamespace = "email/dkim"

const (
	keyNamespace = KeyNamespace
	keyName      = "rsa"
	keyNameSmall = "ed25519"
	tokenKeyName = "verp"
	keyBits      = 2048 // fits a DNS answer and is read by all
	keyTimeout   = 30 * time.Second
)

// DNSRecord returns the name and value of the TXT record that the operator publishes for a signing key. domain may carry a
// port.
func DNSRecord(domain, selector string, key crypto.Signer) (name, value string) {
	return authentication.KeyRecord(identity.HostOf(domain), selector, key)
}

// loadSigners returns the keys that sign: RSA, which all verifiers read, and Ed25519 beside it where a selector is named.
func loadSigners(options Options) ([]authentication.Key, error) {
	key, err := LoadKey(options.State, options.DKIMKeyFile)
	if err != nil {
		return nil, err
	}

	signers := []authentication.Key{{Selector: options.DKIMSelector, Signer: key}}
	if options.DKIMEd25519Selector != "" {
		small, err := LoadEd25519Key(options.State)
		if err != nil {
			return nil, err
		}
		signers = append(signers, authentication.Key{Selector: options.DKIMEd25519Selector, Signer: small})
	}

	return signers, nil
}

// LoadEd25519Key returns the second key, which all nodes share; it is made when it is missing.
func LoadEd25519Key(state KeyState) (crypto.Signer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	stored, found, err := state.Get(ctx, keyNamespace, keyNameSmall)
	if err != nil {
		return nil, fmt.Errorf("load dkim key: %w", err)
	}

	if !found {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("make dkim key: %w", err)
		}
		if stored, _, err = state.PutIfAbsent(ctx, keyNamespace, keyNameSmall, []byte(base64.StdEncoding.EncodeToString(key.Seed())), time.Time{}); err != nil {
			return nil, fmt.Errorf("store dkim key: %w", err)
		}
	}

	seed, err := base64.StdEncoding.DecodeString(string(stored))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("the stored Ed25519 key for DKIM is damaged; remove its selector from the configuration")
	}

	return ed25519.NewKeyFromSeed(seed), nil
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

// loadTokenKey returns the key of the tokens in our addresses, which all nodes share; it is made when it is missing.
func loadTokenKey(state KeyState) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	key, found, err := state.Get(ctx, keyNamespace, tokenKeyName)
	if err != nil {
		return nil, fmt.Errorf("load key of bounce addresses: %w", err)
	}

	if found {
		return key, nil
	}

	fresh := make([]byte, sha256.Size)
	_, _ = rand.Read(fresh)
	if key, _, err = state.PutIfAbsent(ctx, keyNamespace, tokenKeyName, fresh, time.Time{}); err != nil {
		return nil, fmt.Errorf("store key of bounce addresses: %w", err)
	}

	return key, nil
}
