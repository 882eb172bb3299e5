package store

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"inbox/internal/fault"
)

// hashKey makes the short index key of a natural key. Parts are framed by their length, so that no two lists of
// parts meet; 144 bits of SHA-256 do not collide by chance or by intent.
func hashKey(parts ...string) string {
	buffer := make([]byte, 0, 512)
	for _, part := range parts {
		buffer = binary.AppendUvarint(buffer, uint64(len(part)))
		buffer = append(buffer, part...)
	}

	sum := sha256.Sum256(buffer)
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// optionalKey is hashKey for a value that may be absent.
func optionalKey(value string) string {
	if value == "" {
		return ""
	}
	return hashKey(value)
}

// storable reports whether both databases keep the text as it is: PostgreSQL's TEXT is UTF-8 without NUL.
func storable(text string) bool {
	return strings.IndexByte(text, 0) < 0 && utf8.ValidString(text)
}

// requireStorable refuses an identifying text that a database would refuse or change. Names and values alternate.
func requireStorable(namesAndValues ...string) error {
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		if !storable(namesAndValues[i+1]) {
			return fault.InField(namesAndValues[i], "must be valid UTF-8 without NUL")
		}
	}
	return nil
}

// cleaned makes a text for people storable: a peer's status line must not keep the row from being written.
func cleaned(text string) string {
	if storable(text) {
		return text
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Encodings of a body column.
const (
	encodingUTF8   = "utf8"
	encodingBase64 = "base64"
	encodingBlob   = "blob"
)

func encodeBody(body []byte) (encoding, text string) {
	if text := string(body); storable(text) {
		return encodingUTF8, text
	}
	return encodingBase64, base64.StdEncoding.EncodeToString(body)
}

func decodeBody(encoding, text string) ([]byte, error) {
	switch encoding {
	case encodingUTF8:
		return []byte(text), nil
	case encodingBase64:
		return base64.StdEncoding.DecodeString(text)
	}
	return nil, nil
}

// micros is how instants are stored; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func instant(stored int64) time.Time {
	if stored == 0 {
		return time.Time{}
	}
	return time.UnixMicro(stored).UTC()
}

// flag is how a truth is stored: SQLite and PostgreSQL share no boolean that both index alike.
func flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

// placeholders returns "$from,$from+1,…" for n arguments.
func placeholders(from, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(from + i))
	}

	return b.String()
}
