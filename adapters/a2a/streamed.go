package a2a

import (
	"crypto/sha256"
	"hash"
)

// streamed remembers which text a reader has, without keeping it: the readers of one task are many.
type streamed struct {
	size int
	sum  hash.Hash
}

func (s *streamed) reset() { *s = streamed{} }

func (s *streamed) add(text string) {
	if s.sum == nil {
		s.sum = sha256.New()
	}
	s.size += len(text)
	_, _ = s.sum.Write([]byte(text)) // a hash takes everything
}

// cut returns what of a text comes behind the one that was sent; false when it does not begin with that.
func (s *streamed) cut(text string) (rest string, ok bool) {
	if s.size == 0 {
		return text, true
	}
	if len(text) < s.size {
		return "", false
	}
	var begins streamed
	begins.add(text[:s.size])
	return text[s.size:], [sha256.Size]byte(begins.sum.Sum(nil)) == [sha256.Size]byte(s.sum.Sum(nil))
}
