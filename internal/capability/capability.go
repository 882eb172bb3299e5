// Package capability mints the tokens that stand in mails, addresses and pages of this server. A token speaks for one party about
// one thing: it is a keyed hash of both, so a token of one purpose, party or thing never stands for another. It stores nothing and
// knows no message; a caller whose token ends after one use keeps a row for it.
package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
)

// Claim says for what a token is good.
type Claim struct {
	Purpose string // what its holder can do with it, such as "bounce"; unique in the server
	Who     string // the party that it was given to
	What    string // the one thing that it is about
}

// Bytes is the length of a token before its encoding: 128 bits, which cannot be guessed.
const Bytes = 16

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Mint returns the token of a claim: 26 characters a-z and 2-7, which mail systems keep whatever they do to case. Key is at least
// 32 random bytes, the same on every node.
func Mint(key []byte, claim Claim) string {
	return encoding.EncodeToString(sum(key, claim))
}

// Valid reports whether the token was minted for the claim. Its time does not depend on the token.
func Valid(key []byte, claim Claim, token string) bool {
	given, err := encoding.DecodeString(token)
	return err == nil && hmac.Equal(given, sum(key, claim))
}

func sum(key []byte, claim Claim) []byte {
	mac := hmac.New(sha256.New, key)
	for _, text := range []string{"capability", claim.Purpose, claim.Who, claim.What} { // lengths keep the fields apart
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
		mac.Write([]byte(text))
	}
	return mac.Sum(nil)[:Bytes]
}
