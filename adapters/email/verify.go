package email

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/identity"
	"inbox/normalized"
)

var metricVerified = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_email_authentication_total", Help: "Mails by what was proved about their From domain."},
	[]string{"method", "dmarc"}) // email-dmarc, email-dkim, none; pass, fail, none, temperror

const (
	verifyTimeout = 60 * time.Second
	maxTries      = 3 // after so many answers 451 for DNS trouble a mail is taken as unverified
)

// envelope is what SMTP said about one mail.
type envelope struct {
	id         string // of the transaction, for logs and the Received field
	ip         string
	helo       string
	tls        string // protocol version, empty = plain text
	from       string // MAIL FROM, empty = null
	utf8       bool   // the transaction asked for SMTPUTF8 (RFC 6531)
	recipients []recipient
	received   time.Time
}

// client is the address of the peer where it stands for a sender: behind a relay of the operator's own it does not.
func (e envelope) client() netip.Addr {
	address, err := netip.ParseAddr(e.ip)
	if err != nil || address.IsLoopback() || address.IsPrivate() || address.IsLinkLocalUnicast() {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}

// recipient is one accepted RCPT.
type recipient struct {
	agent    string // empty = the operator
	address  string // canonical @agent@domain
	local    string // agent or postmaster, lower-case
	tag      string
	envelope string // as given
	bounce   string // the delivery that reports to this address are about
	answered string // the reply of ours whose thread tag the address has
}

// verdict is everything that was found out about a sender.
type verdict struct {
	from       mailbox
	signatures []dkimSignature
	spf        spfResult
	dmarc      dmarcResult
	arc        *arcResult // nil = not looked at
	method     string     // normalized.Auth…
	keyID      string
}

func (v verdict) verified() bool { return v.method != normalized.AuthNone }

// verify authenticates the From field. A refusal is an *smtp.SMTPError.
func (a *Adapter) verify(ctx context.Context, env envelope, from mailbox, fields header, mail []byte) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()

	body := bodyOf(fields, mail)
	result, silent := a.examine(ctx, env, from, signedMail{fields: fields, body: body})
	if silent {
		return result, answer(550, smtp.EnhancedCode{5, 7, 27}, "The sender's domain says that it takes no mail (null MX)")
	}

	if result.dmarc.Result == resultFail && from.Domain != a.domain {
		if result.arc = a.checkARC(ctx, from.Domain, fields, body); result.arc.believed() {
			result.method, result.keyID = normalized.AuthEmailDMARC, result.arc.keyID
		}
	}
	metricVerified.WithLabelValues(result.method, result.dmarc.Result).Inc()
	return result, a.decide(result, mail)
}

// examine looks up what is known about the sender's domains and checks the signatures. It reports silent for a domain that takes
// no mail itself.
func (a *Adapter) examine(ctx context.Context, env envelope, from mailbox, mail signedMail) (result verdict, silent bool) {
	result.from = from
	var policy dmarcPolicy
	var lookups sync.WaitGroup
	lookups.Go(func() { result.spf = a.checkSPF(ctx, env) })
	lookups.Go(func() { policy = a.lookupPolicy(ctx, from.Domain) })
	lookups.Go(func() { silent = a.takesNoMail(ctx, env.from) })
	result.signatures = a.verifyDKIM(ctx, mail)
	lookups.Wait()

	result.dmarc = a.evaluate(ctx, from.Domain, policy, result.signatures, result.spf)
	result.method, result.keyID = proof(result.dmarc)
	return result, silent
}

// mayBeProven reports whether the rest of a mail, of which the header and the beginning of the body are there, can still prove its
// sender: SPF passes, or a signature over the header holds, and only its body hash is open. It lets pass what DNS trouble hides
// and what a trusted sealer may vouch for.
func (a *Adapter) mayBeProven(ctx context.Context, env envelope, begin []byte) bool {
	fields, body, err := splitHeader(begin)
	if err != nil {
		return false
	}
	from, err := parseFrom(fields)
	if err != nil {
		return false
	}
	if len(a.options.ARCSealers) > 0 && len(fields.all("ARC-Seal")) > 0 {
		return true
	}

	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	found, silent := a.examine(ctx, env, from, signedMail{fields: fields, body: body, headerOnly: true})
	return !silent && (found.verified() || found.dmarc.trouble)
}

// bodyOf gives what stands behind the header and its empty line.
func bodyOf(fields header, mail []byte) []byte {
	for _, one := range fields {
		mail = mail[len(one.raw):]
	}
	return bytes.TrimPrefix(mail, []byte("\r\n"))
}

// takesNoMail says whether the domain of the envelope sender has a null MX (RFC 7505, section 4.2): neither an answer nor
// a bounce could reach it.
func (a *Adapter) takesNoMail(ctx context.Context, from string) bool {
	if from == "" {
		return false
	}
	silent, err := a.dns.silent.get(ctx, absolute(from[strings.LastIndexByte(from, '@')+1:]), func(ctx context.Context, name string) (bool, error) {
		servers, err := a.dns.inner.LookupMX(ctx, name)
		return len(servers) == 1 && servers[0].Host == ".", err
	})
	return err == nil && silent
}

func proof(found dmarcResult) (method, keyID string) {
	method = normalized.AuthNone
	switch {
	case found.Result == resultPass:
		method = normalized.AuthEmailDMARC
	case found.Result != resultFail && found.signature != nil:
		method = normalized.AuthEmailDKIM
	}
	if found.signature != nil {
		keyID = found.signature.Selector + "._domainkey." + found.signature.Domain
	}
	return method, keyID
}

// decide refuses what the owner of the From domain wants refused, puts off what DNS trouble hides, and lets the
// rest in with honest evidence.
func (a *Adapter) decide(found verdict, mail []byte) error {
	if found.verified() {
		return nil
	}
	if found.dmarc.trouble {
		if a.tries.next(mail) > maxTries {
			return nil
		}
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 5},
			Message: "DNS lookups for the sender's domain failed, please try again later"}
	}
	if found.from.Domain == a.domain {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 26},
			Message: "Mail from " + a.domain + " must be authenticated; no aligned DKIM signature or SPF pass was found"}
	}
	if policy := found.dmarc.Policy; found.dmarc.Result == resultFail && (policy == policyReject || policy == policyQuarantine && a.options.RefuseQuarantine) {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 26},
			Message: fmt.Sprintf("DMARC policy of %s is %s and neither DKIM nor SPF passed aligned", found.dmarc.Domain, policy)}
	}
	return nil
}

// claims is the context that evidence carries about a mail.
type claims struct {
	DKIM      []dkimSignature `json:"dkim"`
	SPF       spfResult       `json:"spf"`
	DMARC     dmarcResult     `json:"dmarc"`
	ARC       *arcResult      `json:"arc,omitempty"`
	IP        string          `json:"ip"`
	HELO      string          `json:"helo"`
	TLS       string          `json:"tls,omitempty"`
	Addressed bool            `json:"addressed"` // the agent stands in To or Cc
}

func (v verdict) claims(env envelope, addressed bool) json.RawMessage {
	signatures := v.signatures
	if signatures == nil {
		signatures = []dkimSignature{}
	}
	encoded, err := json.Marshal(claims{
		DKIM: signatures, SPF: v.spf, DMARC: v.dmarc, ARC: v.arc, IP: env.ip, HELO: cleanText(env.helo, 255), TLS: env.tls, Addressed: addressed,
	})
	if err != nil {
		return nil
	}
	return encoded
}

var evidenceMethods = map[string]string{
	normalized.AuthEmailDMARC: identity.MethodEmailDMARC,
	normalized.AuthEmailDKIM:  identity.MethodEmailDKIM,
}

// evidence states what the mail's own proof says about its sender (message contract, section 10): the domain
// vouches for the mailbox name, so the assurance is the domain's.
func (a *Adapter) evidence(found verdict, env envelope, to recipient, claims json.RawMessage) []identity.Evidence {
	if !found.verified() {
		return nil
	}
	proof := identity.Transport(identity.TransportProof{
		Domain: a.options.Domain, Subject: "mailto:" + found.from.address(), Method: evidenceMethods[found.method],
		Assurance: identity.AssuranceDomain, Recipient: to.address, KeyID: found.keyID, IssuedAt: env.received,
	})
	proof.Claims, proof.Source = claims, &identity.Source{Transport: normalized.ViaEmail}
	return []identity.Evidence{proof}
}
