package identity

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"math/big"
	"slices"
	"strings"
)

const base58Alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// maxBase58 bounds what is decoded: the work grows with the square, and a signature has 88 characters.
const maxBase58 = 128

var (
	errMultibase = errors.New("must be multibase base58btc (z…)")
	errMultikey  = errors.New("is not an Ed25519 multikey")
)

// multikeyEd25519 is the multicodec prefix of an Ed25519 public key (Controlled Identifiers 1.0, section 2.2.2).
var multikeyEd25519 = []byte{0xed, 0x01}

// encodeMultibase writes base58btc with its multibase letter z.
func encodeMultibase(data []byte) string {
	number, base, digit := new(big.Int).SetBytes(data), big.NewInt(58), new(big.Int)
	var reversed []byte
	for number.Sign() > 0 {
		number.DivMod(number, base, digit)
		reversed = append(reversed, base58Alphabet[digit.Int64()])
	}
	var text strings.Builder
	text.WriteByte('z')
	for _, b := range data {
		if b != 0 {
			break
		}
		text.WriteByte(base58Alphabet[0])
	}
	for _, letter := range slices.Backward(reversed) {
		text.WriteByte(letter)
	}
	return text.String()
}

// decodeMultibase reads what encodeMultibase writes and nothing else.
func decodeMultibase(text string) ([]byte, error) {
	digits, ok := strings.CutPrefix(text, "z")
	if !ok || digits == "" || len(digits) > maxBase58 {
		return nil, errMultibase
	}
	number, base := new(big.Int), big.NewInt(58)
	for i := range len(digits) {
		value := strings.IndexByte(base58Alphabet, digits[i])
		if value < 0 {
			return nil, errMultibase
		}
		number.Add(number.Mul(number, base), big.NewInt(int64(value)))
	}
	zeros := len(digits) - len(strings.TrimLeft(digits, base58Alphabet[:1]))
	return append(make([]byte, zeros), number.Bytes()...), nil
}

func encodeMultikey(key ed25519.PublicKey) string {
	return encodeMultibase(append(bytes.Clone(multikeyEd25519), key...))
}

func decodeMultikey(text string) (ed25519.PublicKey, error) {
	data, err := decodeMultibase(text)
	if err != nil {
		return nil, err
	}
	key, ok := bytes.CutPrefix(data, multikeyEd25519)
	if !ok || len(key) != ed25519.PublicKeySize {
		return nil, errMultikey
	}
	return key, nil
}
