package email

import (
	"context"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"slices"
	"strings"

	"inbox/adapters/email/dns"
)

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
func (a *Adapter) signingKey(ctx context.Context, selector, domain string) (*keyRecord, *signatureFault) {
	key, err := a.key(ctx, selector+"._domainkey."+domain)
	switch {
	case err != nil && dns.NotFound(err):
		return nil, refused(resultPermError, "there is no such key")
	case err != nil:
		return nil, refused(resultTempError, "the key could not be asked for: "+err.Error())
	}
	return key, nil
}

func (a *Adapter) key(ctx context.Context, name string) (*keyRecord, error) {
	return a.keys.Get(ctx, dns.Absolute(name), func(ctx context.Context, name string) (*keyRecord, error) {
		texts, err := a.dns.Source.LookupTXT(ctx, name)
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

// readRSA takes both forms in which keys are published: RFC 6376 says one, its errata and everybody the other.
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
