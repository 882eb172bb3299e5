package a2a

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"
)

// owner is the pair to which every task and every context belongs.
type owner struct {
	agent     string
	principal string
}

const (
	uuidLength = 36
	tagLength  = 16
)

// mintContext makes a context id for a message that names none: a UUIDv7 and a tag that binds it to its owner.
func (o owner) mintContext() string {
	id := newID()
	return id + "." + o.tag(id)
}

// thread returns the stored thread id of a context. A context that a client invented gets the owner's tag, so that
// the same name chosen by two principals is two threads. A context of the form that we mint must carry the owner's
// tag: somebody else's, existing or not, is not found.
func (o owner) thread(contextID string) (thread string, found bool) {
	if id, tag, minted := splitMinted(contextID); minted {
		return contextID, tag == o.tag(id)
	}
	return contextID + "." + o.tag(contextID), true
}

func (o owner) tag(id string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{"a2a context", o.agent, o.principal, id}, "\x00")))
	return hex.EncodeToString(sum[:])[:tagLength]
}

func splitMinted(contextID string) (id, tag string, minted bool) {
	if len(contextID) != uuidLength+1+tagLength || contextID[uuidLength] != '.' {
		return "", "", false
	}
	parsed, err := uuid.Parse(contextID[:uuidLength])
	if err != nil || parsed.Version() != 7 {
		return "", "", false
	}
	return contextID[:uuidLength], contextID[uuidLength+1:], true
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
