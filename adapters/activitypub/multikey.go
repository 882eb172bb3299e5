package activitypub

import (
	"crypto"
	"crypto/ed25519"
	"errors"
	"math/big"
	"slices"
	"strings"
)

// Multikey (Controlled Identifiers 1.0, section 2.2.2): z + base58btc(0xed 0x01 + 32 bytes) is an Ed25519 key.
const (
	multibaseBase58 = "z"
	ed25519Code     = "\xed\x01"
)

func parseMultikey(material string) (crypto.PublicKey, error) {
	raw, ok := decodeMultibase(material)
	if !ok || len(raw) != len(ed25519Code)+ed25519.PublicKeySize || string(raw[:len(ed25519Code)]) != ed25519Code {
		return nil, errors.New("multikey is not an Ed25519 key")
	}
	return ed25519.PublicKey(raw[len(ed25519Code):]), nil
}

func multikeyOf(key ed25519.PublicKey) string {
	return encodeMultibase(append([]byte(ed25519Code), key...))
}

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
