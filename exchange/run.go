package exchange

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxReadableRun is the longest run id, in bytes, that stands in a message's id as it is.
const maxReadableRun = 256

// RunMessageID returns the id of the message that began a run of a chat client, by which its turn is found again. A longer
// run id stands in it as its hash.
func RunMessageID(run string) string {
	if len(run) > maxReadableRun {
		sum := sha256.Sum256([]byte("chat id\x00" + run))
		run = hex.EncodeToString(sum[:])
	}
	return "chat:run:" + run
}
