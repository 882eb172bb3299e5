package text

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"inbox/adapters/email/message"
)

// encryptionOf names how a part is encrypted; empty = it is not. Nothing here has keys to read it.
func encryptionOf(e *message.Entity) string {
	switch {
	case e.Media == "multipart/encrypted":
		if strings.EqualFold(e.Params["protocol"], "application/pgp-encrypted") {
			return "OpenPGP"
		}
		return "in a way that is not known here"

	case e.Media == "multipart/mixed" && slices.ContainsFunc(e.Children, func(child *message.Entity) bool { return child.Media == "application/pgp-encrypted" }):
		return "OpenPGP" // as Exchange rewrites it
	case isCMS(e):
		switch strings.ToLower(e.Params["smime-type"]) {
		case "", "enveloped-data", "authenveloped-data":
			return "S/MIME"
		}
	}
	return ""
}

// isCMS reports whether a part is a CMS message.
func isCMS(e *message.Entity) bool {
	return e.Media == "application/pkcs7-mime" || e.Media == "application/x-pkcs7-mime"
}

func encryptedNotice(how string) string {
	return "[This mail is encrypted (" + how + "). Its content cannot be read here; the sender has to send it without encryption.]"
}

// signedPart returns the mail inside of an opaque S/MIME signature (RFC 8551, section 3.5.2). claims reports whether the part says that
// it is one.
func signedPart(e *message.Entity) (content []byte, claims bool) {
	kind := strings.ToLower(e.Params["smime-type"])
	if !isCMS(e) || kind != "" && kind != "signed-data" {
		return nil, false
	}
	content, err := signedContent(e.Decode())
	if err != nil {
		return nil, kind != ""
	}
	return content, true
}

const (
	wrappedNotice = "[The content of this mail is inside an S/MIME signature and cannot be read here; the sender must send it as clear text.]"
	unwrapNotice  = "[The content of this mail was inside an S/MIME signature, which was not checked here: it proves nothing about the sender.]"
)

// armored reports whether a text is one OpenPGP message, as old plugins send it.
func armored(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "-----BEGIN PGP MESSAGE-----")
}

// Lines around OpenPGP in a text (RFC 9580, sections 6 and 7).
const (
	pgpMessage   = "-----BEGIN PGP MESSAGE-----"
	pgpSigned    = "-----BEGIN PGP SIGNED MESSAGE-----"
	pgpSignature = "-----BEGIN PGP SIGNATURE-----"
	pgpKey       = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
)

const (
	armourNotice = "[This text is encrypted with OpenPGP and cannot be read here.]"
	signedNotice = "[Text above has an OpenPGP signature, which was not checked here: it proves nothing about the sender.]"
)

// armourType returns the media type of a file that is OpenPGP in ASCII armour; "" = it is none.
func armourType(body []byte) string {
	body = bytes.TrimLeft(body, "\ufeff \t\r\n")
	for _, one := range []struct{ begin, media string }{
		{pgpMessage, "application/pgp-encrypted"}, {pgpSignature, "application/pgp-signature"}, {pgpKey, "application/pgp-keys"},
	} {
		if bytes.HasPrefix(body, []byte(one.begin)) {
			return one.media
		}
	}
	return ""
}

// withoutArmour takes the lines of OpenPGP out of a text: what was signed stays, what is encrypted becomes a notice, and so do
// keys. A block that does not end stays as it is. blocks are what was taken out.
func withoutArmour(text string) (rest string, blocks []string) {
	if !strings.Contains(text, "-----BEGIN PGP ") {
		return text, nil
	}

	notices := map[string]string{pgpMessage: armourNotice, pgpKey: "[An OpenPGP key.]"}
	lines := strings.Split(text, "\n")
	var out []string
	for i := 0; i < len(lines); {
		switch mark := strings.TrimRight(lines[i], " \t"); mark {
		case pgpMessage, pgpKey:
			if notices[mark] == "" {
				break // no line further below ends such a block
			}
			if end := lineOf(lines[i:], strings.Replace(mark, "BEGIN", "END", 1)); end > 0 {
				out = append(out, notices[mark])
				blocks = append(blocks, strings.Join(lines[i:i+end+1], "\n"))
				i += end + 1
				continue
			}
			notices[mark] = ""
		case pgpSigned:
			begin := lineOf(lines[i:], "") // the header of the armour ends with an empty line
			middle := lineOf(lines[i:], pgpSignature)
			end := lineOf(lines[i:], "-----END PGP SIGNATURE-----")
			if begin > 0 && begin < middle && middle < end {
				for _, line := range lines[i+begin+1 : i+middle] {
					out = append(out, strings.TrimPrefix(line, "- "))
				}
				out = append(out, "", signedNotice)
				blocks = append(blocks, strings.Join(lines[i+middle:i+end+1], "\n"))
				i += end + 1
				continue
			}

			// Nothing ends here, so nothing below does: what is left is looked at once.
			return strings.Join(append(out, lines[i:]...), "\n"), blocks
		}

		out = append(out, lines[i])
		i++
	}

	return strings.Join(out, "\n"), blocks
}

// lineOf returns at which line a text stands; -1 = at none.
func lineOf(lines []string, wanted string) int {
	return slices.IndexFunc(lines, func(line string) bool { return strings.TrimRight(line, " \t") == wanted })
}

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
// read use indefinite lengths. Certificates and signatures are not looked at: the content is a claim of the sender and no more.
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
