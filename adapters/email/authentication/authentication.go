// Package authentication finds out what a mail proves about its sender: SPF (RFC 7208) for the envelope, DKIM (RFC 6376,
// RFC 8301, RFC 8463) for the signed bytes, DMARC (RFC 9989) for whether either speaks for the From field, and ARC (RFC 8617)
// for what trusted forwarders saw. It signs mails that leave as well.
//
// It refuses nothing and knows neither SMTP answers nor agents: its results carry status, what was read and the error behind
// it, and what follows from them is the adapter's to decide.
package authentication

import (
	"context"
	"strings"
	"sync"
	"time"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
)

// CheckTimeout bounds all lookups for one mail.
const CheckTimeout = 60 * time.Second

// Options configures a Checker. Resolver and Now are required.
type Options struct {
	Resolver *dns.Resolver
	Domain   string   // ours; no forwarder vouches for mail that claims it
	Sealers  []string // forwarders whose word about DMARC counts (RFC 8617); empty = ARC is not read
	Now      func() time.Time
}

// Checker authenticates mails. It remembers keys for as long as their records say.
type Checker struct {
	resolver *dns.Resolver
	keys     dns.Answers[*keyRecord]
	domain   string
	sealers  []string
	now      func() time.Time
}

// New returns a checker.
func New(o Options) *Checker {
	return &Checker{resolver: o.Resolver, domain: o.Domain, sealers: o.Sealers, now: o.Now}
}

// Connection is what SMTP said about the peer and the transaction.
type Connection struct {
	IP   string
	HELO string
	From string // MAIL FROM, empty = null
}

// Result is everything that was found out about a mail.
type Result struct {
	NullMX bool // the domain of the envelope sender takes no mail; nothing else was evaluated
	DKIM   []Signature
	SPF    SPF
	DMARC  DMARC
	ARC    *ARC // nil = not looked at
}

// Methods by which a From domain is proven.
const (
	MethodDMARC = "dmarc" // a policy exists, and an aligned identifier passed it, or trusted forwarders saw that
	MethodDKIM  = "dkim"  // no policy exists; an aligned signature passed
)

// Proof returns what proves the From domain, and the name of the key that did; both are empty when nothing does.
func (r Result) Proof() (method, keyID string) {
	switch {
	case r.DMARC.Result == Pass:
		method = MethodDMARC
	case r.ARC.Believed():
		return MethodDMARC, r.ARC.KeyID
	case r.DMARC.Result != Fail && len(r.DMARC.Signatures) > 0:
		method = MethodDKIM
	}

	if len(r.DMARC.Signatures) > 0 {
		keyID = r.DMARC.Signatures[0].KeyID()
	}

	return method, keyID
}

// KeyID returns the DNS name of the key that signed.
func (s *Signature) KeyID() string { return s.Selector + "._domainkey." + s.Domain }

// Check authenticates the From domain of a mail, whose header was read already. The bytes must be those that were received.
func (c *Checker) Check(ctx context.Context, peer Connection, from string, fields message.Header, mail []byte) Result {
	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	defer cancel()

	body := fields.Body(mail)
	result := c.examine(ctx, peer, from, signedMail{fields: fields, body: body})
	if !result.NullMX && result.DMARC.Result == Fail && from != c.domain {
		result.ARC = c.checkARC(ctx, from, fields, body)
	}
	return result
}

// MayProve reports whether the rest of a mail, of which the header and the beginning of the body are there, can still prove its
// From domain: SPF passes, or a signature over the header holds, and only its body hash is open. It lets pass what DNS trouble
// hides and what a trusted sealer may vouch for.
func (c *Checker) MayProve(ctx context.Context, peer Connection, from string, fields message.Header, begin []byte) bool {
	if len(c.sealers) > 0 && fields.Has("ARC-Seal") {
		return true
	}

	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	defer cancel()

	result := c.examine(ctx, peer, from, signedMail{fields: fields, body: fields.Body(begin), headerOnly: true})
	method, _ := result.Proof()
	return !result.NullMX && (method != "" || result.DMARC.Trouble)
}

// examine looks up what is known about the sender's domains and checks the signatures.
func (c *Checker) examine(ctx context.Context, peer Connection, from string, mail signedMail) (result Result) {
	var policy dmarcPolicy
	var lookups sync.WaitGroup
	lookups.Go(func() { result.SPF = c.checkSPF(ctx, peer) })
	lookups.Go(func() { policy = c.lookupPolicy(ctx, from) })
	lookups.Go(func() { result.NullMX = c.takesNoMail(ctx, peer.From) })
	result.DKIM = c.verifyDKIM(ctx, mail)
	lookups.Wait()

	if !result.NullMX {
		result.DMARC = c.evaluate(ctx, from, policy, result.DKIM, result.SPF)
	}
	return result
}

// takesNoMail reports whether the domain of the envelope sender has a null MX: neither an answer nor a bounce could reach it.
func (c *Checker) takesNoMail(ctx context.Context, from string) bool {
	if from == "" {
		return false
	}
	silent, err := c.resolver.NullMX(ctx, from[strings.LastIndexByte(from, '@')+1:])
	return err == nil && silent
}
