// Package sealing keeps secrets that other systems trust us with unreadable for anyone who gets a copy of the database: AES-256
// in GCM mode under one key that is kept outside of it. It makes no key and stores nothing.
package sealing

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// KeyBytes is the length of a key.
const KeyBytes = 32

// prefix names the form, so that a later one can stand beside it.
const prefix = "v1."

// ErrForeign is the error of a text that was not sealed under the key and for the purpose.
var ErrForeign = errors.New("the text was sealed under another key, for another purpose, or was changed")

// Box seals and opens. It is safe for concurrent use.
type Box struct {
	cipher      cipher.AEAD
	fingerprint string
}

// New makes a Box of KeyBytes random bytes.
func New(key []byte) (*Box, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("the key has %d bytes, want %d", len(key), KeyBytes)
	}

	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}

	mode, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(append([]byte("inbox sealing key "), key...))
	return &Box{cipher: mode, fingerprint: hex.EncodeToString(sum[:8])}, nil
}

// Fingerprint tells keys apart without telling anything about them.
func (b *Box) Fingerprint() string { return b.fingerprint }

// NewKey returns a random key.
func NewKey() []byte {
	key := make([]byte, KeyBytes)
	_, _ = rand.Read(key) // never fails since Go 1.24
	return key
}

// Seal returns a printable text of the secret. The purpose names what it belongs to: only there it can be opened.
func (b *Box) Seal(secret []byte, purpose string) string {
	return prefix + base64.RawURLEncoding.EncodeToString(b.cipher.Seal(nil, nil, secret, []byte(purpose))) //nolint:gosec // the mode makes the nonce
}

// Open returns the secret; ErrForeign when it cannot.
func (b *Box) Open(sealed, purpose string) ([]byte, error) {
	encoded, found := strings.CutPrefix(sealed, prefix)
	if !found {
		return nil, ErrForeign
	}

	content, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, ErrForeign
	}

	secret, err := b.cipher.Open(nil, nil, content, []byte(purpose))
	if err != nil {
		return nil, ErrForeign
	}
	return secret, nil
}
