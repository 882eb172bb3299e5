package email

import (
	"bytes"
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
	wrappedNotice = "[The content of this mail is inside of an S/MIME signature and cannot be read here; the sender has to send it as clear text.]"
	unwrapNotice  = "[The content of this mail was inside of an S/MIME signature, which was not checked here: it proves nothing about the sender.]"
)

// armored says whether a text is one OpenPGP message, as old plugins send it.
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
	armourNotice = "[Here stands a text that is encrypted with OpenPGP; it cannot be read here.]"
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
// keys. A block that does not end stays as it is.
func withoutArmour(text string) string {
	if !strings.Contains(text, "-----BEGIN PGP ") {
		return text
	}
	notices := map[string]string{pgpMessage: armourNotice, pgpKey: "[Here stands an OpenPGP key.]"}
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
				i += end + 1
				continue
			}
			// Nothing ends here, so nothing below does: what is left is looked at once.
			return strings.Join(append(out, lines[i:]...), "\n")
		}
		out = append(out, lines[i])
		i++
	}
	return strings.Join(out, "\n")
}

// lineOf returns at which line a text stands; -1 = at none.
func lineOf(lines []string, wanted string) int {
	return slices.IndexFunc(lines, func(line string) bool { return strings.TrimRight(line, " \t") == wanted })
}
