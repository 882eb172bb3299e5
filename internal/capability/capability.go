// Package capability mints the tokens that stand in mails, addresses, cookies and pages of this server. A token speaks for one
// party about one thing: it is a keyed hash of both, so a token of one purpose, party or thing never stands for another. A token that
// names nothing is drawn, and its owner keeps a row with its hash. The package stores nothing and knows no message; a caller whose
// token ends after one use keeps a row for it.
package capability

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
)

// Claim says for what a token is good.
type Claim struct {
	Purpose string // what its holder can do with it, such as "bounce"; unique in the server
	Who     string // the party that it was given to
	What    string // the one thing that it is about
	Form    Form

	// Former mints and recognises the tokens of versions before decision 0137, which hash the purpose and the thing alone: people
	// have them in mails, and rows have their hashes. Such a thing is a row that names its party. New purposes never use it.
	Former bool
}

// Form is how a token is written.
type Form int

// Forms. The shorter ones are for places without room: no one can try many tokens there.
const (
	Plain Form = iota // 26 characters a-z and 2-7, which mail systems keep whatever they do to case: 128 bits
	Short             // 16 of them, because the local part of an address has 64 octets (RFC 5321, section 4.5.3.1.1): 80 bits
	Typed             // 16 characters that people can type, without those that look alike: 80 bits
	Long              // 43 characters of base64url, where case is kept and a protocol wants as many (RFC 7636, section 4.1): 256 bits
)

var (
	lower     = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	crockford = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
)

// forms has the number of bytes of each form, and how they are written.
var forms = map[Form]struct {
	bytes int
	write func([]byte) string
}{
	Plain: {16, lower.EncodeToString},
	Short: {10, lower.EncodeToString},
	Typed: {10, crockford.EncodeToString},
	Long:  {32, base64.RawURLEncoding.EncodeToString},
}

// Mint returns the token of a claim. Key is at least 32 random bytes, the same on every node.
func Mint(key []byte, claim Claim) string {
	form := forms[claim.Form]
	return form.write(sum(key, claim)[:form.bytes])
}

// Valid reports whether the token was minted for the claim. Its time does not depend on the token.
func Valid(key []byte, claim Claim, token string) bool {
	return hmac.Equal([]byte(token), []byte(Mint(key, claim)))
}

// Draw returns a random token: no one derives it from anything.
func Draw(form Form) string {
	drawn := make([]byte, forms[form].bytes)
	_, _ = rand.Read(drawn) // never fails since Go 1.24
	return forms[form].write(drawn)
}

func sum(key []byte, claim Claim) []byte {
	mac := hmac.New(sha256.New, key)
	if claim.Former {
		mac.Write([]byte(claim.Purpose + claim.What))
		return mac.Sum(nil)
	}

	for _, text := range []string{"capability", claim.Purpose, claim.Who, claim.What} { // lengths keep the fields apart
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
		mac.Write([]byte(text))
	}
	return mac.Sum(nil)
}
