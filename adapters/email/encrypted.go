package email

import "strings"

// encryption names how a part is encrypted; empty = it is not. Nothing here has keys to read it.
func (e *entity) encryption() string {
	switch e.media {
	case "multipart/encrypted":
		if strings.EqualFold(e.params["protocol"], "application/pgp-encrypted") {
			return "OpenPGP"
		}
		return "in a way that is not known here"
	case "application/pkcs7-mime", "application/x-pkcs7-mime":
		switch strings.ToLower(e.params["smime-type"]) {
		case "", "enveloped-data", "authenveloped-data":
			return "S/MIME"
		}
	}
	return ""
}

func encryptedNotice(how string) string {
	return "[This mail is encrypted (" + how + "). Its content cannot be read here; the sender has to send it without encryption.]"
}

// wrapped says whether a part hides its text within a signature (S/MIME opaque signing).
func (e *entity) wrapped() bool {
	return (e.media == "application/pkcs7-mime" || e.media == "application/x-pkcs7-mime") && strings.EqualFold(e.params["smime-type"], "signed-data")
}

const wrappedNotice = "[The content of this mail is inside of an S/MIME signature and cannot be read here; the sender has to send it as clear text.]"

// armored says whether a text is one OpenPGP message, as old plugins send it.
func armored(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "-----BEGIN PGP MESSAGE-----")
}
