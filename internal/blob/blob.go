// Package blob keeps bytes under the SHA-256 of their content: attachments and large originals. What Put acknowledged
// survives a power cut. It counts no references and deletes nothing by itself; access to a blob is decided by the
// room that hands its digest out.
package blob

import (
	"context"
	"encoding/hex"
	"io"
	"time"

	"inbox/internal/fault"
)

// Store keeps content-addressed bytes. A digest is the lower-case hex SHA-256 of the content, 64 characters. Errors
// are faults: Malformed for a text that is no digest, NotFound, TooLarge over the store's limit, Unavailable when
// the storage fails. All methods may be called concurrently. Package blobtest checks an implementation.
type Store interface {
	// Put reads to the end and stores the content. Content that is there already is stored once.
	Put(ctx context.Context, from io.Reader) (digest string, size int64, err error)
	// PutBytes is Put for content in memory.
	PutBytes(ctx context.Context, content []byte) (digest string, err error)
	// Stage is PutBytes for a caller that may turn out not to need the content. withdraw removes it again at once, unless it was there
	// before or another caller has put it since. It is nil if the store cannot know that: then a sweep removes the content.
	Stage(ctx context.Context, content []byte) (withdraw func() error, err error)
	// Open returns the content; the caller closes it.
	Open(ctx context.Context, digest string) (io.ReadCloser, error)
	// Stat returns the size of the content in bytes.
	Stat(ctx context.Context, digest string) (size int64, err error)
	// Delete removes the content; content that is not there is no error. The caller makes sure that it is not needed
	// and that no one puts the same content at the same time.
	Delete(ctx context.Context, digest string) error
}

// Backend is a Store that a server keeps its contents in: contents that are not needed any more are found and removed, and it is known
// whose it is.
type Backend interface {
	Store
	// DeleteIdle removes content that was not put since the time given, and reports whether it is gone: a caller that put it later may
	// not have written down yet that it is needed. The caller makes sure that nothing refers to it. A caller that puts it meanwhile has
	// it afterwards.
	DeleteIdle(ctx context.Context, digest string, since time.Time) (gone bool, err error)
	// EachIdle calls visit for the contents that were not put since the time given, until visit returns an error, which is then its own.
	EachIdle(ctx context.Context, since time.Time, visit func(digest string) error) error
	// ID returns the id that the store was given; empty for a store that has none yet.
	ID(ctx context.Context) (id string, err error)
	// SetID names the store. The id is a line of at most IDBytes printable characters.
	SetID(ctx context.Context, id string) error
}

// idName is the object, or the file, with the id of a store.
const idName = "store.id"

// IDBytes bounds the id of a store.
const IDBytes = 200

// DigestBytes is the length of a digest in its text form.
const DigestBytes = 64

// ValidDigest reports whether the text is a digest. Every path in a store is made of one, so this is also what keeps
// "../" out.
func ValidDigest(digest string) bool {
	if len(digest) != DigestBytes {
		return false
	}
	for _, c := range []byte(digest) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func checkDigest(digest string) error {
	if !ValidDigest(digest) {
		return fault.InField("digest", "want 64 lower-case hexadecimal digits")
	}
	return nil
}

func format(sum []byte) string { return hex.EncodeToString(sum) }
