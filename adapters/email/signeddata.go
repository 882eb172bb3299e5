package email

import (
	"bytes"
	"errors"
)

// Bounds of a CMS structure that is walked.
const (
	maxSignedDepth    = 16
	maxSignedElements = 100_000 // a text in pieces of a kilobyte has 25,000
	maxUnwrapped      = 3       // signatures inside of signatures
)

var errSignedData = errors.New("the part is no CMS SignedData that can be read")

// Object identifiers of RFC 5652, sections 4 and 5.1.
var (
	oidData       = []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01}
	oidSignedData = []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02}
)

// Tags of X.690, section 8.1.2.
const (
	tagOctets      = 0x04
	tagObject      = 0x06
	tagSequence    = 0x30
	tagExplicit    = 0xa0 // [0], constructed
	tagConstructed = 0x20
)

// signedContent returns what a CMS SignedData (RFC 5652, section 5.1) holds, in BER as in DER: mail programs that write as they
// read use indefinite lengths. Certificates and signatures are not looked at: the content is what somebody says and no more.
func signedContent(data []byte) ([]byte, error) {
	r := &berReader{data: data}
	r.enter(tagSequence) // ContentInfo
	if !bytes.Equal(r.primitive(tagObject), oidSignedData) {
		return nil, errSignedData
	}
	r.enter(tagExplicit)
	r.enter(tagSequence) // SignedData
	r.skip(0)            // version
	r.skip(0)            // digestAlgorithms
	r.enter(tagSequence) // encapContentInfo
	if !bytes.Equal(r.primitive(tagObject), oidData) {
		return nil, errSignedData
	}
	r.enter(tagExplicit)
	content := r.octets(nil, 0)
	if r.failed || len(content) == 0 {
		return nil, errSignedData
	}
	return content, nil
}

// berReader walks once over BER (X.690). It never reads past its data; the first error ends it.
type berReader struct {
	data     []byte
	at       int
	elements int
	failed   bool
}

// head reads tag and length; length is -1 where the element ends with its end-of-contents octets.
func (r *berReader) head() (tag byte, length int) {
	if r.elements++; r.failed || r.elements > maxSignedElements || len(r.data)-r.at < 2 {
		r.failed = true
		return 0, 0
	}
	tag, length = r.data[r.at], int(r.data[r.at+1])
	r.at += 2
	switch {
	case tag&0x1f == 0x1f: // a tag of several bytes: CMS has none before the content
		r.failed = true
	case length == 0x80:
		r.failed = r.failed || tag&tagConstructed == 0
		return tag, -1
	case length > 0x80:
		size := length & 0x7f
		if size > 4 || len(r.data)-r.at < size {
			r.failed = true
			return 0, 0
		}
		length = 0
		for _, c := range r.data[r.at : r.at+size] {
			length = length<<8 | int(c)
		}
		r.at += size
	}
	if length > len(r.data)-r.at {
		r.failed = true
		return 0, 0
	}
	return tag, length
}

// enter steps into a constructed element. Where it ends does not matter: only what comes first in it is read.
func (r *berReader) enter(wanted byte) {
	if tag, _ := r.head(); tag != wanted {
		r.failed = true
	}
}

func (r *berReader) primitive(wanted byte) []byte {
	tag, length := r.head()
	if r.failed || tag != wanted || length < 0 {
		r.failed = true
		return nil
	}
	r.at += length
	return r.data[r.at-length : r.at]
}

// skip steps over one element.
func (r *berReader) skip(depth int) {
	_, length := r.head()
	switch {
	case r.failed:
	case depth > maxSignedDepth:
		r.failed = true
	case length >= 0:
		r.at += length
	default:
		for !r.failed && !r.endOfContents() {
			r.skip(depth + 1)
		}
	}
}

func (r *berReader) endOfContents() bool {
	if len(r.data)-r.at >= 2 && r.data[r.at] == 0 && r.data[r.at+1] == 0 {
		r.at += 2
		return true
	}
	return false
}

// octets reads an octet string that may consist of others (X.690, section 8.7.3).
func (r *berReader) octets(out []byte, depth int) []byte {
	tag, length := r.head()
	switch {
	case r.failed || depth > maxSignedDepth || tag&^tagConstructed != tagOctets:
		r.failed = true
		return out
	case tag == tagOctets:
		r.at += length
		return append(out, r.data[r.at-length:r.at]...)
	}
	end := r.at + length
	for !r.failed {
		if length < 0 && r.endOfContents() || length >= 0 && r.at == end {
			return out
		}
		if length >= 0 && r.at > end {
			break
		}
		out = r.octets(out, depth+1)
	}
	r.failed = true
	return out
}
