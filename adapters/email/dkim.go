package email

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

// Bounds of DKIM verification. A signature with a huge h= list costs the number of its names times the number of
// fields; real ones have about twenty names.
const (
	maxSignatures     = 10
	maxSignatureBytes = 4 << 10
	maxSignedNames    = 100
	futureSkew        = 10 * time.Minute
)

// Results of one signature, in the words of RFC 8601 section 2.7.1.
const (
	resultPass      = "pass"
	resultFail      = "fail"
	resultNone      = "none"
	resultPolicy    = "policy"
	resultTempError = "temperror"
	resultPermError = "permerror"
)

// dkimSignature is what one DKIM-Signature field proved.
type dkimSignature struct {
	Domain    string   `json:"d"`
	Selector  string   `json:"s"`
	Algorithm string   `json:"a"`
	Bits      int      `json:"bits,omitempty"`
	Result    string   `json:"result"`
	Uncovered []string `json:"uncovered,omitempty"` // fields that are present and not signed
	Reason    string   `json:"reason,omitempty"`
}

// keyRecord is a DKIM key record (RFC 6376, section 3.6.1) with what the verifier does not look at.
type keyRecord struct {
	texts   []string
	bits    int
	testing bool // t=y: treat as unsigned
	strict  bool // t=s: i= must be in d= itself
}

// verifyDKIM checks the signatures of a mail, topmost first. The bytes must be those that were received.
func (a *Adapter) verifyDKIM(ctx context.Context, fields header, mail []byte) []dkimSignature {
	input, tags := withoutOversized(fields, mail)
	if len(tags) == 0 {
		return nil
	}
	found, err := dkim.VerifyWithOptions(bytes.NewReader(input), &dkim.VerifyOptions{
		LookupTXT:        func(name string) ([]string, error) { return a.keyTexts(ctx, name) },
		MaxVerifications: maxSignatures,
	})
	if err != nil && !errors.Is(err, dkim.ErrTooManySignatures) {
		return []dkimSignature{{Result: resultPermError, Reason: cleanText(err.Error(), 200)}}
	}
	results := make([]dkimSignature, 0, len(found))
	for i, one := range found[:min(len(found), len(tags))] {
		results = append(results, a.judgeSignature(ctx, fields, tags[i], one))
	}
	return results
}

// withoutOversized leaves out signatures that would cost too much to check and gives the tags of the others.
func withoutOversized(fields header, mail []byte) (input []byte, tags []map[string]string) {
	input = mail
	var dropped []field
	for _, f := range fields.all("DKIM-Signature") {
		if len(f.raw) > maxSignatureBytes || bytes.Count(f.raw, []byte(":")) > maxSignedNames {
			dropped = append(dropped, f)
			continue
		}
		tags = append(tags, tagList(f.text()))
	}
	if len(dropped) > 0 {
		input = withoutFields(fields, mail, func(f field) bool {
			for _, gone := range dropped {
				if &gone.raw[0] == &f.raw[0] {
					return true
				}
			}
			return false
		})
	}
	return input, tags
}

// withoutFields copies a mail without the fields that drop names.
func withoutFields(fields header, mail []byte, drop func(field) bool) []byte {
	out := make([]byte, 0, len(mail))
	size := 0
	for _, f := range fields {
		size += len(f.raw)
		if !drop(f) {
			out = append(out, f.raw...)
		}
	}
	return append(out, mail[size:]...)
}

// tagList reads tag=value lists (RFC 6376, section 3.2); white space is of no meaning in the tags that we use.
func tagList(text string) map[string]string {
	tags := map[string]string{}
	for pair := range strings.SplitSeq(text, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			tags[strings.TrimSpace(name)] = strings.Join(strings.Fields(value), "")
		}
	}
	return tags
}

func (a *Adapter) judgeSignature(ctx context.Context, fields header, tags map[string]string, found *dkim.Verification) dkimSignature {
	result := dkimSignature{
		Domain: strings.ToLower(strings.TrimSuffix(tags["d"], ".")), Selector: cleanText(tags["s"], 255),
		Algorithm: cleanText(tags["a"], 40), Result: signatureResult(found.Err),
	}
	if found.Err != nil {
		result.Reason = cleanText(found.Err.Error(), 200)
		return result
	}
	result.Uncovered = uncovered(fields, found.HeaderKeys)
	key, err := a.key(ctx, result.Selector+"._domainkey."+result.Domain)
	if err != nil {
		return result
	}
	result.Bits = key.bits
	result.Result, result.Reason = a.applyKeyFlags(key, tags, found)
	return result
}

// applyKeyFlags does what the verifier leaves open: test keys, strict identities and signatures from the future.
func (a *Adapter) applyKeyFlags(key *keyRecord, tags map[string]string, found *dkim.Verification) (result, reason string) {
	switch {
	case key.testing:
		return resultPolicy, "the key is in test mode (t=y)"
	case key.strict && !strings.EqualFold(found.Identifier[strings.LastIndexByte(found.Identifier, '@')+1:], tags["d"]):
		return resultPolicy, "the key demands i= in the signing domain itself (t=s)"
	case found.Time.After(a.now().Add(futureSkew)):
		return resultPolicy, "the signature is from the future"
	}
	return resultPass, ""
}

func signatureResult(err error) string {
	switch {
	case err == nil:
		return resultPass
	case dkim.IsTempFail(err):
		return resultTempError
	case dkim.IsPermFail(err):
		return resultPermError
	default:
		return resultFail
	}
}

// uncovered names the fields that a reader believes and the signature does not protect.
func uncovered(fields header, signed []string) []string {
	var open []string
	for _, name := range []string{"subject", "date", "to", "message-id", "content-type", "reply-to", "in-reply-to", "references"} {
		covered := false
		for _, key := range signed {
			covered = covered || strings.EqualFold(strings.TrimSpace(key), name)
		}
		if !covered && fields.has(name) {
			open = append(open, name)
		}
	}
	return open
}

func (a *Adapter) keyTexts(ctx context.Context, name string) ([]string, error) {
	key, err := a.key(ctx, name)
	if err != nil {
		// The verifier asks the error itself, not its chain, whether it is temporary.
		if notFound(err) {
			return nil, &net.DNSError{Err: "no such key", Name: name, IsNotFound: true}
		}
		return nil, &net.DNSError{Err: err.Error(), Name: name, IsTemporary: true}
	}
	return key.texts, nil
}

func (a *Adapter) key(ctx context.Context, name string) (*keyRecord, error) {
	return a.dns.keys.get(ctx, absolute(name), func(ctx context.Context, name string) (*keyRecord, error) {
		texts, err := a.dns.inner.LookupTXT(ctx, name)
		if err != nil {
			return nil, err
		}
		return parseKey(texts), nil
	})
}

func parseKey(texts []string) *keyRecord {
	record := &keyRecord{texts: texts}
	if len(texts) != 1 {
		return record
	}
	tags := tagList(texts[0])
	for flag := range strings.SplitSeq(tags["t"], ":") {
		record.testing = record.testing || flag == "y"
		record.strict = record.strict || flag == "s"
	}
	der, err := base64.StdEncoding.DecodeString(tags["p"])
	if err != nil {
		return record
	}
	if tags["k"] == "ed25519" {
		record.bits = ed25519.PublicKeySize * 8
	} else if public := rsaKey(der); public != nil {
		record.bits = public.N.BitLen()
	}
	return record
}

func rsaKey(der []byte) *rsa.PublicKey {
	if public, err := x509.ParsePKIXPublicKey(der); err == nil {
		key, _ := public.(*rsa.PublicKey)
		return key
	}
	key, _ := x509.ParsePKCS1PublicKey(der)
	return key
}
