package authentication

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-msgauth/authres"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
)

const maxARCSets = 50 // RFC 8617, section 4.2.1

// ARC is what a chain of forwarders proved (RFC 8617). It is read only where the operator trusts sealers: any
// server can seal a lie.
type ARC struct {
	Result  string   `json:"result"` // none, pass, fail
	Sealers []string `json:"sealers,omitempty"`
	Reason  string   `json:"reason,omitempty"`

	DMARC bool   `json:"-"` // the first sealer saw DMARC pass for the From domain
	KeyID string `json:"-"` // of the newest seal
	Err   error  `json:"-"` // what Reason tells
}

// arcSet is what one forwarder added.
type arcSet struct{ results, message, seal *message.Field }

var (
	errARCSets   = errors.New("the sets are not complete")
	errARCChain  = errors.New("a seal says that the chain was broken")
	errARCBody   = errors.New("the body is not the one that was signed")
	errARCHeader = errors.New("the newest signature does not cover From")
)

// Believed reports whether a chain replaces the pass that forwarding broke: every one of its sealers is trusted.
func (r *ARC) Believed() bool { return r != nil && r.Result == Pass && r.DMARC }

// checkARC verifies the chain of a mail when all of its sealers are trusted; nil = it is not looked at.
func (c *Checker) checkARC(ctx context.Context, from string, fields message.Header, body []byte) *ARC {
	if len(c.sealers) == 0 || !fields.Has("ARC-Seal") {
		return nil
	}

	sets, err := arcSets(fields)
	if err != nil {
		return &ARC{Result: Fail, Reason: err.Error(), Err: err}
	}

	result := &ARC{Result: Pass}
	for _, set := range sets {
		tags := dns.Tags(set.seal.Text())
		sealer := strings.ToLower(tags["d"])
		if !slices.Contains(c.sealers, sealer) {
			return nil
		}
		result.Sealers = append(result.Sealers, sealer)
		result.KeyID = tags["s"] + "._domainkey." + sealer
	}

	if err := c.verifyARC(ctx, sets, fields, body); err != nil {
		return &ARC{Result: Fail, Sealers: result.Sealers, Reason: message.Clean(err.Error(), 200), Err: err}
	}

	result.DMARC = sawDMARC(sets[0].results.Text(), from)
	return result
}

// arcSets orders the fields by instance. Missing, doubled and unordered ones break the chain (section 5.2).
func arcSets(fields message.Header) ([]arcSet, error) {
	var sets [maxARCSets]arcSet
	count := 0
	for i := range fields {
		f := &fields[i]
		var place func(*arcSet) **message.Field
		switch strings.ToLower(strings.TrimRight(f.Name, " \t")) {
		case "arc-authentication-results":
			place = func(s *arcSet) **message.Field { return &s.results }
		case "arc-message-signature":
			place = func(s *arcSet) **message.Field { return &s.message }
		case "arc-seal":
			place = func(s *arcSet) **message.Field { return &s.seal }
		default:
			continue
		}

		number, err := strconv.Atoi(arcInstance(f.Text()))
		if err != nil || number < 1 || number > maxARCSets || len(f.Raw) > 4*maxSignatureBytes {
			return nil, errARCSets
		}

		at := place(&sets[number-1])
		if *at != nil {
			return nil, errARCSets
		}

		*at, count = f, max(count, number)
	}

	for i := range sets[:count] {
		set := sets[i]
		if set.results == nil || set.message == nil || set.seal == nil {
			return nil, errARCSets
		}
		if want := map[bool]string{true: "none", false: "pass"}[i == 0]; strings.ToLower(dns.Tags(set.seal.Text())["cv"]) != want {
			return nil, errARCChain
		}
	}

	if count == 0 {
		return nil, errARCSets
	}

	return sets[:count], nil
}

func arcInstance(value string) string {
	first, _, _ := strings.Cut(value, ";")
	if name, number, found := strings.Cut(first, "="); found && strings.TrimSpace(name) == "i" {
		return strings.TrimSpace(number)
	}
	return dns.Tags(value)["i"]
}

func (c *Checker) verifyARC(ctx context.Context, sets []arcSet, fields message.Header, body []byte) error {
	newest := sets[len(sets)-1].message
	tags := dns.Tags(newest.Text())
	relaxedHeader, relaxedBody, err := canonicalForms(tags["c"])
	if err != nil {
		return err
	}

	digest := hashBody(body, relaxedBody)
	if given, err := base64.StdEncoding.DecodeString(tags["bh"]); err != nil || !bytes.Equal(given, digest.sum[:]) {
		return errARCBody
	}

	names := strings.Split(tags["h"], ":")
	if !containsFold(names, "from") || containsFold(names, "arc-seal") || len(names) > maxSignedNames {
		return errARCHeader
	}

	hash := sha256.New()
	newFieldPicker(fields).write(hash, names, relaxedHeader)
	_, _ = hash.Write(withoutSignature(newest, relaxedHeader))
	if err := c.verifyARCField(ctx, tags, hash.Sum(nil)); err != nil {
		return err
	}

	for last := len(sets); last > 0; last-- {
		hash := sha256.New()
		for _, set := range sets[:last-1] {
			for _, one := range []*message.Field{set.results, set.message, set.seal} {
				writeField(hash, one.Raw, true)
			}
		}

		set := sets[last-1]
		writeField(hash, set.results.Raw, true)
		writeField(hash, set.message.Raw, true)
		_, _ = hash.Write(withoutSignature(set.seal, true))
		if err := c.verifyARCField(ctx, dns.Tags(set.seal.Text()), hash.Sum(nil)); err != nil {
			return err
		}
	}

	return nil
}

func (c *Checker) verifyARCField(ctx context.Context, tags map[string]string, digest []byte) error {
	key, fault := c.signingKey(ctx, tags["s"], strings.ToLower(tags["d"]))
	if fault == nil {
		fault = key.verify(tags, digest)
	}
	if fault != nil {
		return fault
	}
	return nil
}

// sawDMARC reads the results that the first sealer recorded.
func sawDMARC(value, from string) bool {
	_, rest, _ := strings.Cut(value, ";")
	_, results, err := authres.Parse(strings.TrimSpace(rest))
	if err != nil {
		return false
	}

	for _, one := range results {
		if found, is := one.(*authres.DMARCResult); is && found.Value == authres.ResultPass && strings.EqualFold(found.From, from) {
			return true
		}
	}

	return false
}
