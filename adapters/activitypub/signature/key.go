package signature

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// ParseKey reads SPKI or PKCS #1 PEM, or a Multikey, and refuses weak and absurd keys.
func ParseKey(material string) (crypto.PublicKey, error) {
	if strings.HasPrefix(material, "z") {
		return parseMultikey(material)
	}
	block, _ := pem.Decode([]byte(material))
	if block == nil {
		return nil, errors.New("key is neither PEM nor a Multikey")
	}

	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		pkcs1, otherErr := x509.ParsePKCS1PublicKey(block.Bytes) // "RSA PUBLIC KEY" of some small servers
		if otherErr != nil {
			return nil, errors.New("key cannot be parsed")
		}
		parsed = pkcs1
	}

	switch key := parsed.(type) {
	case *rsa.PublicKey:
		return key, checkRSA(key)
	case ed25519.PublicKey:
		return key, nil
	}
	return nil, errors.New("key is neither RSA nor Ed25519")
}

func checkRSA(key *rsa.PublicKey) error {
	bits := key.N.BitLen()
	switch {
	case bits < 2048:
		return errors.New("RSA key is shorter than 2048 bits")
	case bits > 8192:
		return errors.New("RSA key is longer than 8192 bits")
	case key.E < 65537:
		return errors.New("RSA key has an exponent below 65537")
	}

	return nil
}

// SameKey reports whether two keys are equal.
func SameKey(one, other crypto.PublicKey) bool {
	key, ok := one.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return ok && key.Equal(other)
}

// A Multikey (Controlled Identifiers 1.0, section 2.2.2): z + base58btc(0xed 0x01 + 32 bytes) is an Ed25519 key.
const (
	multibaseBase58 = "z"
	ed25519Code     = "\xed\x01"
	rsaCode         = "\x85\x24" // multicodec rsa-pub, as varint: PKCS #1
)

func parseMultikey(material string) (crypto.PublicKey, error) {
	raw, ok := decodeMultibase(material)
	if !ok || len(raw) != len(ed25519Code)+ed25519.PublicKeySize || string(raw[:len(ed25519Code)]) != ed25519Code {
		return nil, errors.New("multikey is not an Ed25519 key")
	}
	return ed25519.PublicKey(raw[len(ed25519Code):]), nil
}

// Multikey writes an Ed25519 or RSA key as a Multikey; empty for any other.
func Multikey(key crypto.PublicKey) string {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return encodeMultibase(append([]byte(ed25519Code), key...))
	case *rsa.PublicKey:
		return encodeMultibase(append([]byte(rsaCode), x509.MarshalPKCS1PublicKey(key)...))
	}
	return ""
}

// EncodePrivate writes a private key as PEM of PKCS #8.
func EncodePrivate(key any) (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

// DecodePrivate reads what EncodePrivate writes.
func DecodePrivate(text string) (any, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("not PEM")
	}
	return x509.ParsePKCS8PrivateKey(block.Bytes)
}

// PublicPEM writes a public key as PEM of SPKI.
func PublicPEM(key *rsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), nil
}

// base58btc of keys and signatures: two short functions, checked against each other by FuzzMultibase, in place of a module.
const (
	base58Alphabet  = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	maxBase58Letter = 128 // keys and signatures of Ed25519 have at most 88
)

// decodeMultibase reads short base58btc text with its multibase letter.
func decodeMultibase(text string) ([]byte, bool) {
	digits, found := strings.CutPrefix(text, multibaseBase58)
	if !found || len(digits) > maxBase58Letter {
		return nil, false
	}

	number, zeros := new(big.Int), 0
	for i := range len(digits) {
		digit := strings.IndexByte(base58Alphabet, digits[i])
		if digit < 0 {
			return nil, false
		}

		if digit == 0 && zeros == i {
			zeros++
		}
		number.Mul(number, big.NewInt(58)).Add(number, big.NewInt(int64(digit)))
	}

	return append(make([]byte, zeros), number.Bytes()...), true
}

// encodeMultibase is the inverse of decodeMultibase.
func encodeMultibase(raw []byte) string {
	number, base, digit := new(big.Int).SetBytes(raw), big.NewInt(58), new(big.Int)
	var reversed []byte
	for number.Sign() > 0 {
		number.DivMod(number, base, digit)
		reversed = append(reversed, base58Alphabet[digit.Int64()])
	}

	for _, b := range raw {
		if b != 0 {
			break
		}
		reversed = append(reversed, base58Alphabet[0])
	}

	slices.Reverse(reversed)
	return multibaseBase58 + string(reversed)
}
