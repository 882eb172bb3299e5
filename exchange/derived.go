package exchange

import (
	"crypto/sha256"
	"strconv"

	"github.com/google/uuid"
)

// DerivedID returns the id of what comes of another row: always the same for the same row and words, in the form of a UUIDv7 (RFC 9562,
// section 5.7) with the time of that row. What leaves by it is recognised by a peer that has it already, also where the row was
// restored from a backup and is worked on once more. Of an origin that is no UUIDv7 the time is 0. It is no secret: who knows the
// origin can compute it.
func DerivedID(origin string, words ...string) string {
	sum := sha256.New()
	for _, word := range append([]string{"inbox derived id", origin}, words...) {
		sum.Write([]byte(strconv.Itoa(len(word)) + ":" + word))
	}

	var id uuid.UUID
	copy(id[:], sum.Sum(nil))
	copy(id[:6], make([]byte, 6))
	if parsed, err := uuid.Parse(origin); err == nil && parsed.Version() == 7 {
		copy(id[:6], parsed[:6])
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}
