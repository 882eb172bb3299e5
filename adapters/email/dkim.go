package email

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/idna"
)

// Bounds of DKIM verification. A signature costs the number of its names times the number of fields; real ones have about
// twenty names.
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

// signedMail is a mail whose signatures are checked. The bytes must be those that were received.
type signedMail struct {
	adapter *Adapter
	fields  header
	body    []byte
	picker  fieldPicker
	hashes  [2]*[sha256.Size]byte // of the body in simple and in relaxed form, when a signature asked for it

	headerOnly bool // the rest of the body is still to come: body hashes are not compared
}

// verifyDKIM checks the signatures of a mail, topmost first (RFC 6376, RFC 8301, RFC 8463). It is not left to the library:
// that one compares domains by case, knows no clock but its own, and costs more than all the rest of accepting a mail.
func (a *Adapter) verifyDKIM(ctx context.Context, mail signedMail) []dkimSignature {
	var results []dkimSignature
	mail.adapter = a
	fields := mail.fields
	for i := range fields {
		if !fields[i].is("DKIM-Signature") || len(fields[i].raw) > maxSignatureBytes {
			continue
		}
		if mail.picker == nil {
			mail.picker = newFieldPicker(fields)
		}
		if result, cheap := mail.judge(ctx, &fields[i]); cheap {
			results = append(results, result)
		}
		if len(results) == maxSignatures {
			break
		}
	}
	return results
}

// judge gives the result of one signature. cheap is false when it would cost too much to find it out.
func (m *signedMail) judge(ctx context.Context, f *field) (result dkimSignature, cheap bool) {
	text := f.text()
	tags := tagList(text)
	names := strings.Split(tags["h"], ":")
	if len(names) > maxSignedNames {
		return result, false
	}
	selector := tags["s"]
	if !isASCII(selector) {
		selector = asciiDomain(selector)
	}
	result = dkimSignature{Domain: asciiDomain(tags["d"]), Selector: cleanText(selector, 255), Algorithm: cleanText(tags["a"], 40)}
	if hasDoubles(text) {
		result.Result, result.Reason = resultPermError, "a tag stands twice"
		return result, true
	}
	if fault := m.check(ctx, f, tags, names, &result); fault != nil {
		result.Result, result.Reason = fault.result, cleanText(fault.reason, 200)
		return result, true
	}
	result.Result, result.Uncovered = resultPass, uncovered(m.fields, names)
	return result, true
}

// asciiDomain returns the form of a domain or selector that is asked for in the DNS: signatures of internationalized mail
// may hold letters of any script (RFC 8616, section 5).
func asciiDomain(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if isASCII(name) {
		return name
	}
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		return ascii
	}
	return name
}

// signatureFault is why a signature proves nothing.
type signatureFault struct{ result, reason string }

func refused(result, reason string) *signatureFault { return &signatureFault{result, reason} }

// check follows RFC 6376, section 6.1, in its order, except that the body is hashed before the key is asked for.
func (m *signedMail) check(ctx context.Context, f *field, tags map[string]string, names []string, result *dkimSignature) *signatureFault {
	identity, fault := m.checkTags(tags, names, result.Domain)
	if fault != nil {
		return fault
	}
	relaxedHeader, relaxedBody, err := canonicalForms(tags["c"])
	if err != nil {
		return refused(resultPermError, err.Error())
	}
	claimed, err := base64.StdEncoding.DecodeString(tags["bh"])
	if err != nil {
		return refused(resultPermError, "the body hash is no base64")
	}
	if !m.headerOnly {
		if sum := m.bodyHash(relaxedBody); string(claimed) != string(sum[:]) {
			return refused(resultFail, "body hash did not verify")
		}
	}
	key, fault := m.adapter.signingKey(ctx, result.Selector, result.Domain)
	if fault != nil {
		return fault
	}
	result.Bits = key.bits
	hash := sha256.New()
	m.picker.write(hash, names, relaxedHeader)
	_, _ = hash.Write(withoutSignature(f, relaxedHeader))
	if fault := key.verify(tags, hash.Sum(nil)); fault != nil {
		return fault
	}
	return key.checkFlags(identity, result.Domain)
}

// checkTags reads what can be judged without the key. It gives the domain of i=.
func (m *signedMail) checkTags(tags map[string]string, names []string, domain string) (identity string, _ *signatureFault) {
	if tags["v"] != "1" {
		return "", refused(resultPermError, "the version is not 1")
	}
	for _, tag := range []string{"a", "b", "bh", "d", "h", "s"} {
		if tags[tag] == "" {
			return "", refused(resultPermError, "the tag "+tag+" is missing")
		}
	}
	identity = domain
	if given, ok := tags["i"]; ok {
		identity = asciiDomain(given[strings.LastIndexByte(given, '@')+1:])
		if !strings.Contains(given, "@") || identity != domain && !strings.HasSuffix(identity, "."+domain) {
			return "", refused(resultPermError, "i= is not in the signing domain")
		}
	}
	switch _, counted := tags["l"]; {
	case !containsFold(names, "from"):
		return "", refused(resultPermError, "From field not signed")
	case counted:
		return "", refused(resultPolicy, "l= leaves a part of the body unsigned")
	case tags["q"] != "" && !containsFold(strings.Split(tags["q"], ":"), "dns/txt"):
		return "", refused(resultPermError, "the query method is not known")
	case tags["a"] == "rsa-sha1": // RFC 8301, section 3.1
		return "", refused(resultPermError, "hash algorithm too weak")
	case tags["a"] != algorithmRSA && tags["a"] != algorithmEd25519:
		return "", refused(resultPermError, "the algorithm is not known")
	}
	return identity, m.checkTimes(tags)
}

func (m *signedMail) checkTimes(tags map[string]string) *signatureFault {
	made, fault := signatureSecond(tags, "t")
	if fault != nil {
		return fault
	}
	ends, fault := signatureSecond(tags, "x")
	if fault != nil {
		return fault
	}
	now := m.adapter.now()
	switch {
	case !made.IsZero() && !ends.IsZero() && ends.Before(made):
		return refused(resultPermError, "the signature ends before it was made")
	case !ends.IsZero() && now.After(ends):
		return refused(resultPermError, "the signature has expired")
	case made.After(now.Add(futureSkew)):
		return refused(resultPolicy, "the signature is from the future")
	}
	return nil
}

func signatureSecond(tags map[string]string, name string) (time.Time, *signatureFault) {
	value, given := tags[name]
	if !given {
		return time.Time{}, nil
	}
	const year9999 = 253402300799
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil && errors.Is(err, strconv.ErrRange) && value[0] != '-' {
		seconds, err = year9999, nil // values of up to twelve digits are to be taken; larger ones mean for ever
	}
	if err != nil || seconds < 0 {
		return time.Time{}, refused(resultPermError, name+"= is no time")
	}
	return time.Unix(min(seconds, year9999), 0), nil
}

func (m *signedMail) bodyHash(relaxed bool) *[sha256.Size]byte {
	form := 0
	if relaxed {
		form = 1
	}
	if m.hashes[form] == nil {
		sum := hashBody(m.body, relaxed)
		m.hashes[form] = &sum
	}
	return m.hashes[form]
}

// verify holds a signature against the key.
func (k *keyRecord) verify(tags map[string]string, digest []byte) *signatureFault {
	signature, err := base64.StdEncoding.DecodeString(tags["b"])
	if err != nil {
		return refused(resultPermError, "the signature is no base64")
	}
	switch {
	case k.fault != "":
		return refused(resultPermError, k.fault)
	case tags["a"] == algorithmRSA && k.rsa != nil:
		if err := rsa.VerifyPKCS1v15(k.rsa, crypto.SHA256, digest, signature); err != nil {
			return refused(resultFail, "signature did not verify")
		}
		return nil
	case tags["a"] == algorithmEd25519 && k.edwards != nil: // the digest itself is what is signed (RFC 8463, section 3)
		if !ed25519.Verify(k.edwards, digest, signature) {
			return refused(resultFail, "signature did not verify")
		}
		return nil
	}
	return refused(resultPermError, "the key is for another algorithm")
}

// checkFlags applies what the owner of the key says about it: test keys prove nothing, and strict ones sign for their own
// domain alone.
func (k *keyRecord) checkFlags(identity, domain string) *signatureFault {
	switch {
	case k.testing:
		return refused(resultPolicy, "the key is in test mode (t=y)")
	case k.strict && identity != domain:
		return refused(resultPolicy, "the key demands i= in the signing domain itself (t=s)")
	}
	return nil
}

// tagList reads tag=value lists (RFC 6376, section 3.2); white space is of no meaning in the tags that we use. Of a tag that
// stands twice the last counts.
func tagList(text string) map[string]string {
	tags := make(map[string]string, 12)
	for pair := range strings.SplitSeq(text, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			if value = strings.TrimSpace(value); strings.ContainsAny(value, blanks) {
				value = strings.Join(strings.Fields(value), "")
			}
			tags[strings.TrimSpace(name)] = value
		}
	}
	return tags
}

// hasDoubles says whether a tag stands twice, which makes the list invalid (RFC 6376, section 3.2).
func hasDoubles(text string) bool {
	seen := make(map[string]bool, 12)
	for pair := range strings.SplitSeq(text, ";") {
		if name, _, ok := strings.Cut(pair, "="); ok {
			if name = strings.TrimSpace(name); seen[name] {
				return true
			}
			seen[name] = true
		}
	}
	return false
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

// uncovered names the fields that a reader believes and the signature does not protect.
func uncovered(fields header, signed []string) []string {
	var open []string
	for _, name := range []string{"subject", "date", "to", "message-id", "content-type", "reply-to", "in-reply-to", "references"} {
		if !containsFold(signed, name) && fields.has(name) {
			open = append(open, name)
		}
	}
	return open
}
