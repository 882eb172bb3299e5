package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"inbox/identity"
)

// maxReadable bounds names of outside that are kept as they are, in bytes; longer ones are kept as their hash.
const maxReadable = 200

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func hashOf(pieces ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(pieces, "\x00")))
	return hex.EncodeToString(sum[:])
}

// escaped writes a name of outside so that it can stand in a subject: no blanks, nothing that does not print. Separators
// stay, so that rules may name a beginning such as T123/.
func escaped(name string) string {
	if len(name) > maxReadable {
		return "sha256-" + hashOf(name)
	}
	return strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
}

// short keeps an id of outside readable where it is not too long.
func short(id string) string {
	if len(id) > maxReadable {
		return "sha256-" + hashOf(id)
	}
	return id
}

// address is local@domain; a local part that cannot stand in an address is replaced by a hash of the subject.
func (a *Adapter) address(local, subject string) string {
	if address, err := identity.ParseAddress(local + "@" + a.options.Domain); err == nil && address.Local == local {
		return address.String()
	}
	if address, err := identity.ParseAddress("bridged-" + hashOf(subject)[:24] + "@" + a.options.Domain); err == nil {
		return address.String()
	}
	return "@bridged@" + a.options.Domain
}
