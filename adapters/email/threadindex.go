package email

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"inbox/adapters/email/message"
)

const (
	indexHead   = 22 // bytes of the conversation: 1 reserved, 5 of the time, 16 of an id
	indexChild  = 5  // bytes of each answer
	maxChildren = 100
)

// fileTime counts 100 ns since 1601, as Windows does.
func fileTime(t time.Time) uint64 {
	const epoch = 116444736000000000
	if t.Unix() < 0 {
		return epoch
	}
	return uint64(t.UnixNano()/100) + epoch
}

// threadIndexOf gives the field as it is kept: without the white space that folding leaves, and nothing that is no index.
func threadIndexOf(fields message.Header) string {
	value := strings.Join(strings.Fields(fields.Get("Thread-Index")), "")
	if answerIndex(value, time.Time{}) == "" {
		return ""
	}
	return value
}

// answerIndex is the Thread-Index of an answer to a mail of Outlook: that of the mail and one child more, whose time is
// counted from the beginning of the conversation ([MS-OXOMSG], section 2.2.1.3). Empty when the mail has none that can be
// read.
func answerIndex(parent string, at time.Time) string {
	raw, err := base64.StdEncoding.DecodeString(parent)
	if err != nil || len(raw) < indexHead || (len(raw)-indexHead)%indexChild != 0 || len(raw) > indexHead+maxChildren*indexChild {
		return ""
	}
	var start [8]byte
	copy(start[:6], raw[:6])
	begun, now := binary.BigEndian.Uint64(start[:]), fileTime(at)
	if now < begun {
		now = begun
	}
	delta, far := now-begun, uint32(0)
	if delta>>49 == 0 {
		delta >>= 18
	} else {
		delta, far = delta>>23, 1
	}
	child := make([]byte, indexChild) // the last byte is random elsewhere; a repeat must have the same bytes
	binary.BigEndian.PutUint32(child, far<<31|uint32(delta&0x7fffffff))
	return base64.StdEncoding.EncodeToString(append(raw, child...))
}
