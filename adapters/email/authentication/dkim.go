package authentication

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/idna"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
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
	Pass      = "pass"
	Fail      = "fail"
	None      = "none"
	Policy    = "policy"
	TempError = "temperror"
	PermError = "permerror"
)

// Signature is what one DKIM-Signature field proved.
type Signature struct {
	Domain    string   `json:"d"`
	Selector  string   `json:"s"`
	Algorithm string   `json:"a"`
	Bits      int      `json:"bits,omitempty"`
	Result    string   `json:"result"`
	Uncovered []string `json:"uncovered,omitempty"` // fields of which an instance is not signed
	Reason    string   `json:"reason,omitempty"`    // why it proves nothing, in one clean line

	Made time.Time         `json:"-"` // t=; zero = it does not say
	Tags map[string]string `json:"-"` // as read
	Err  error             `json:"-"` // what Reason tells, with its cause; nil = it passed
}

// signedMail is a mail whose signatures are checked. The bytes must be those that were received.
type signedMail struct {
	checker *Checker
	fields  message.Header
	body    []byte
	picker  fieldPicker
	digests [2]*bodyDigest // of the body in simple and in relaxed form, when a signature asked for it

	headerOnly bool // the rest of the body is still to come: body hashes are not compared
}

// verifyDKIM checks the signatures of a mail, topmost first (RFC 6376, RFC 8301, RFC 8463). It does not use the library
// (decision 0180), which
//   - cannot judge a header before its body has arrived (TestHeadersAreJudgedWithoutTheBody),
//   - fetches the key before it compares the body (TestBodyIsComparedBeforeTheKeyIsFetched),
//   - refuses domains of mixed case and has its own clock (TestDomainsOfSignaturesHaveNoCase),
//   - refuses tags that contain b= (TestEqualSignsInOtherTags) and hides the flags of keys (TestFlagsOfKeysBind).
//
// Everywhere else both agree (TestSignaturesAreJudgedAsByTheLibrary).
func (c *Checker) verifyDKIM(ctx context.Context, mail signedMail) []Signature {
	var results []Signature
	mail.checker = c
	fields := mail.fields
	for i := range fields {
		if !fields[i].Is("DKIM-Signature") || len(fields[i].Raw) > maxSignatureBytes {
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

// judge returns the result of one signature. cheap is false when it would cost too much to find it out.
func (m *signedMail) judge(ctx context.Context, f *message.Field) (result Signature, cheap bool) {
	text := f.Text()
	tags := dns.Tags(text)
	names := strings.Split(tags["h"], ":")
	if len(names) > maxSignedNames {
		return result, false
	}

	selector := tags["s"]
	if !message.IsASCII(selector) {
		selector = asciiDomain(selector)
	}

	result = Signature{Domain: asciiDomain(tags["d"]), Selector: message.Clean(selector, 255), Algorithm: message.Clean(tags["a"], 40), Tags: tags}
	if dns.RepeatsTag(text) {
		result.fail(refused(PermError, "a tag is a duplicate"))
		return result, true
	}

	if fault := m.check(ctx, f, tags, names, &result); fault != nil {
		result.fail(fault)
		return result, true
	}

	result.Result, result.Uncovered = Pass, uncovered(m.fields, names)
	return result, true
}

func (s *Signature) fail(fault *signatureFault) {
	s.Result, s.Reason, s.Err = fault.result, message.Clean(fault.reason, 200), fault
}

// asciiDomain returns the form of a domain or selector that is asked for in the DNS: signatures of internationalized mail
// may hold letters of any script (RFC 8616, section 5).
func asciiDomain(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if message.IsASCII(name) {
		return name
	}
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		return ascii
	}
	return name
}

// signatureFault is why a signature proves nothing.
type signatureFault struct {
	result, reason string
	cause          error
}

func (f *signatureFault) Error() string { return f.reason }
func (f *signatureFault) Unwrap() error { return f.cause }

func refused(result, reason string) *signatureFault { return &signatureFault{result, reason, nil} }

// check follows RFC 6376, section 6.1, in its order, except that the body is hashed before the key is asked for.
func (m *signedMail) check(ctx context.Context, f *message.Field, tags map[string]string, names []string, result *Signature) *signatureFault {
	identity, fault := m.checkTags(tags, names, result)
	if fault != nil {
		return fault
	}

	relaxedHeader, relaxedBody, err := canonicalForms(tags["c"])
	if err != nil {
		return refused(PermError, err.Error())
	}

	claimed, err := base64.StdEncoding.DecodeString(tags["bh"])
	if err != nil {
		return refused(PermError, "the body hash is no base64")
	}

	if !m.headerOnly {
		digest := m.bodyDigest(relaxedBody)
		if fault := checkLength(tags, digest.size); fault != nil {
			return fault
		}
		if string(claimed) != string(digest.sum[:]) {
			return refused(Fail, "body hash did not verify")
		}
	}

	key, fault := m.checker.signingKey(ctx, result.Selector, result.Domain)
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

// checkTags reads what can be judged without the key. It returns the domain of i=.
func (m *signedMail) checkTags(tags map[string]string, names []string, result *Signature) (identity string, _ *signatureFault) {
	domain := result.Domain
	if tags["v"] != "1" {
		return "", refused(PermError, "the version is not 1")
	}

	for _, tag := range []string{"a", "b", "bh", "d", "h", "s"} {
		if tags[tag] == "" {
			return "", refused(PermError, "the tag "+tag+" is missing")
		}
	}

	identity = domain
	if given, ok := tags["i"]; ok {
		identity = asciiDomain(given[strings.LastIndexByte(given, '@')+1:])
		if !strings.Contains(given, "@") || identity != domain && !strings.HasSuffix(identity, "."+domain) {
			return "", refused(PermError, "i= is not in the signing domain")
		}
	}

	switch {
	case !containsFold(names, "from"):
		return "", refused(PermError, "From field not signed")
	case tags["q"] != "" && !containsFold(strings.Split(tags["q"], ":"), "dns/txt"):
		return "", refused(PermError, "the query method is not known")
	case tags["a"] == "rsa-sha1": // RFC 8301, section 3.1
		return "", refused(PermError, "hash algorithm too weak")
	case tags["a"] != algorithmRSA && tags["a"] != algorithmEd25519:
		return "", refused(PermError, "the algorithm is not known")
	}

	return identity, m.checkTimes(tags, result)
}

func (m *signedMail) checkTimes(tags map[string]string, result *Signature) *signatureFault {
	made, fault := signatureSecond(tags, "t")
	if fault != nil {
		return fault
	}
	result.Made = made

	ends, fault := signatureSecond(tags, "x")
	if fault != nil {
		return fault
	}

	now := m.checker.now()
	switch {
	case !made.IsZero() && !ends.IsZero() && ends.Before(made):
		return refused(PermError, "the signature ends before it was made")
	case !ends.IsZero() && now.After(ends):
		return refused(PermError, "the signature has expired")
	case made.After(now.Add(futureSkew)):
		return refused(Policy, "the signature is from the future")
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
		return time.Time{}, refused(PermError, name+"= is no time")
	}

	return time.Unix(min(seconds, year9999), 0), nil
}

// checkLength applies the body length tag l= (RFC 6376, section 3.5). A length equal to that of the body covers it whole, so the signature counts. A
// shorter one lets anyone append text to a signed mail (section 8.2), and a longer one is invalid.
func checkLength(tags map[string]string, size uint64) *signatureFault {
	value, counted := tags["l"]
	if !counted {
		return nil
	}

	length, err := strconv.ParseUint(value, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return refused(PermError, "l= is no length")
	case length > size: // also with ErrRange, which comes with the largest number
		return refused(PermError, "l= is larger than the body")
	case length < size:
		return refused(Policy, "l= leaves a part of the body unsigned")
	}
	return nil
}

func (m *signedMail) bodyDigest(relaxed bool) *bodyDigest {
	form := 0
	if relaxed {
		form = 1
	}
	if m.digests[form] == nil {
		digest := hashBody(m.body, relaxed)
		m.digests[form] = &digest
	}
	return m.digests[form]
}

// verify checks a signature with the key.
func (k *keyRecord) verify(tags map[string]string, digest []byte) *signatureFault {
	signature, err := base64.StdEncoding.DecodeString(tags["b"])
	if err != nil {
		return refused(PermError, "the signature is no base64")
	}

	switch {
	case k.fault != "":
		return refused(PermError, k.fault)
	case tags["a"] == algorithmRSA && k.rsa != nil:
		if err := rsa.VerifyPKCS1v15(k.rsa, crypto.SHA256, digest, signature); err != nil {
			return refused(Fail, "signature did not verify")
		}
		return nil

	case tags["a"] == algorithmEd25519 && k.edwards != nil: // the digest itself is what is signed (RFC 8463, section 3)
		if !ed25519.Verify(k.edwards, digest, signature) {
			return refused(Fail, "signature did not verify")
		}
		return nil
	}

	return refused(PermError, "the key is for another algorithm")
}

// checkFlags applies the flags of the key: test keys prove nothing, and strict ones sign for their own
// domain alone.
func (k *keyRecord) checkFlags(identity, domain string) *signatureFault {
	switch {
	case k.testing:
		return refused(Policy, "the key is in test mode (t=y)")
	case k.strict && identity != domain:
		return refused(Policy, "the key demands i= in the signing domain itself (t=s)")
	}
	return nil
}

// believedFields are those that a reader believes.
var believedFields = []string{
	"subject", "date", "to", "cc", "message-id", "content-type", "content-transfer-encoding", "content-disposition", "reply-to", "in-reply-to",
	"references", "resent-from", "resent-to", "resent-cc",
}

// uncovered names the fields that a reader believes and the signature does not protect. A name in h= covers one instance, the lowest
// that is left (RFC 6376, section 5.4.2): a field that was added on top is not signed.
func uncovered(fields message.Header, signed []string) []string {
	var open []string
	for _, name := range believedFields {
		if len(fields.All(name)) > countFold(signed, name) {
			open = append(open, name)
		}
	}
	return open
}

// Covers reports whether the signature protects every instance of one of the fields that a reader believes; name is in lower case.
func (s *Signature) Covers(name string) bool { return !slices.Contains(s.Uncovered, name) }

// CoversLowest reports whether the signature protects the lowest instance of a field, which is the one that Header.Get reads.
func (s *Signature) CoversLowest(name string) bool {
	return containsFold(strings.Split(s.Tags["h"], ":"), name)
}

func countFold(list []string, text string) (count int) {
	for _, one := range list {
		if strings.EqualFold(one, text) {
			count++
		}
	}
	return count
}

func containsFold(list []string, text string) bool {
	for _, one := range list {
		if strings.EqualFold(one, text) {
			return true
		}
	}
	return false
}

// Algorithms of signatures that are believed (RFC 8301, RFC 8463).
const (
	algorithmRSA     = "rsa-sha256"
	algorithmEd25519 = "ed25519-sha256"
)

// Sizes of RSA keys. Smaller ones can be broken (RFC 8301, section 3.2), and larger ones only cost time.
const (
	minRSABits = 1024
	maxRSABits = 8192
)

// keyRecord is a DKIM key record (RFC 6376, section 3.6.1), read once for all mails that it is remembered for.
type keyRecord struct {
	rsa     *rsa.PublicKey
	edwards ed25519.PublicKey
	bits    int
	testing bool   // t=y: treat as unsigned
	strict  bool   // t=s: i= must be in d= itself
	fault   string // why the key cannot be used; empty = it can
}

// signingKey finds the key of a signature.
func (c *Checker) signingKey(ctx context.Context, selector, domain string) (*keyRecord, *signatureFault) {
	key, err := c.key(ctx, selector+"._domainkey."+domain)
	switch {
	case err != nil && dns.NotFound(err):
		return nil, refused(PermError, "there is no such key")
	case err != nil:
		return nil, &signatureFault{TempError, "the key could not be asked for: " + err.Error(), err}
	}
	return key, nil
}

func (c *Checker) key(ctx context.Context, name string) (*keyRecord, error) {
	return c.keys.Get(ctx, dns.Absolute(name), func(ctx context.Context, name string) (*keyRecord, error) {
		texts, err := c.resolver.Source.LookupTXT(ctx, name)
		if err != nil {
			return nil, err
		}
		return parseKey(texts), nil
	})
}

// parseKey reads the one key among the texts of a name; others may be answers of a wildcard.
func parseKey(texts []string) *keyRecord {
	texts = slices.DeleteFunc(slices.Clone(texts), func(text string) bool { _, is := dns.Tags(text)["p"]; return !is })
	if len(texts) != 1 {
		return &keyRecord{fault: "there are several keys, or none, at the name"}
	}

	record := &keyRecord{}
	tags := dns.Tags(texts[0])
	for flag := range strings.SplitSeq(strings.ToLower(tags["t"]), ":") {
		record.testing = record.testing || flag == "y"
		record.strict = record.strict || flag == "s"
	}

	record.fault = record.read(tags)
	return record
}

func (k *keyRecord) read(tags map[string]string) (fault string) {
	version, versioned := tags["v"]
	hashes, hashed := tags["h"]
	services, limited := tags["s"]
	switch {
	case versioned && version != "DKIM1":
		return "the record is not of DKIM1"
	case tags["p"] == "":
		return "the key was revoked"
	case hashed && !containsFold(strings.Split(hashes, ":"), "sha256"):
		return "inappropriate hash algorithm"
	case limited && !containsFold(strings.Split(services, ":"), "email") && !containsFold(strings.Split(services, ":"), "*"):
		return "inappropriate service"
	}

	der, err := base64.StdEncoding.DecodeString(tags["p"])
	if err != nil {
		return "the key is no base64"
	}

	switch kind := strings.ToLower(tags["k"]); kind {
	case "", "rsa":
		return k.readRSA(der)
	case "ed25519":
		return k.readEdwards(der)
	}

	return "the type of the key is not known"
}

// readRSA takes both forms in which keys are published: RFC 6376 has one, its errata and all publishers the other.
func (k *keyRecord) readRSA(der []byte) (fault string) {
	public, err := x509.ParsePKCS1PublicKey(der)
	if err != nil {
		parsed, err := x509.ParsePKIXPublicKey(der)
		if public, _ = parsed.(*rsa.PublicKey); err != nil || public == nil {
			return "the key cannot be read"
		}
	}

	k.bits = public.N.BitLen()
	if k.bits < minRSABits || k.bits > maxRSABits {
		return "the key is too weak or too large"
	}

	k.rsa = public
	return ""
}

func (k *keyRecord) readEdwards(der []byte) (fault string) {
	if len(der) != ed25519.PublicKeySize {
		return "the key cannot be read"
	}
	k.edwards, k.bits = ed25519.PublicKey(der), ed25519.PublicKeySize*8
	return ""
}
