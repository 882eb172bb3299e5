package email

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/message"
	"inbox/identity"
	"inbox/normalized"
)

var metricVerified = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_email_authentication_total", Help: "Mails by what was proved about their From domain."},
	[]string{"method", "dmarc"}) // email-dmarc, email-dkim, none; pass, fail, none, temperror

const (
	maxTries = 3 // after so many answers 451 for DNS trouble a mail is taken as unverified
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
	at         *smtpServer // of the domain that the mail is for; nil = not known before the first recipient
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
	envelope string      // as given
	bounce   *returnPath // what reports to this address are about; nil = it is no bounce address
	called   string      // the local part at our domain by which an agent was called that has another name; empty = by its own
	answered string      // the reply of ours whose thread tag the address has
}

// verdict is everything that was found out about a sender.
type verdict struct {
	authentication.Result
	from   message.Mailbox
	method string // normalized.Auth…
	keyID  string

	// For one recipient, see forRecipient.
	addressing addressing
	disowned   string // method that proves From, where nothing proves that the mail was meant for the recipient
}

func (v verdict) verified() bool { return v.method != normalized.AuthNone }

// authMethods are the contract's names of what was proven.
var authMethods = map[string]string{
	"": normalized.AuthNone, authentication.MethodDMARC: normalized.AuthEmailDMARC, authentication.MethodDKIM: normalized.AuthEmailDKIM,
}

// verifier finds out who sent a mail.
type verifier struct {
	*site
	checker *authentication.Checker
	tries   *tryCounter
}

// verify authenticates the From field. A refusal is an *smtp.SMTPError.
func (v *verifier) verify(ctx context.Context, env envelope, from message.Mailbox, fields message.Header, mail []byte) (verdict, error) {
	found := verdict{
		Result: v.checker.Check(ctx, env.connection(), from.Domain, fields, mail),
		from:   from,
	}

	if found.NullMX {
		return found, answer(550, smtp.EnhancedCode{5, 7, 27}, "The sender's domain says that it takes no mail (null MX)")
	}

	method, keyID := found.Proof()
	found.method, found.keyID = authMethods[method], keyID
	metricVerified.WithLabelValues(found.method, found.DMARC.Result).Inc()
	return found, v.decide(found, mail)
}

// mayBeProven reports whether the rest of a mail, of which the beginning is there, can still prove its sender.
func (v *verifier) mayBeProven(ctx context.Context, env envelope, begin []byte) bool {
	fields, _, err := message.Split(begin)
	if errors.Is(err, message.ErrDamaged) {
		if begin, err = message.Mend(begin); err == nil {
			fields, _, err = message.Split(begin)
		}
	}
	if err != nil {
		return false
	}
	from, err := message.ParseFrom(fields)
	return err == nil && v.checker.MayProve(ctx, env.connection(), from.Domain, fields, begin)
}

// connection is what authentication looks at.
func (e envelope) connection() authentication.Connection {
	return authentication.Connection{IP: e.ip, HELO: e.helo, From: e.from}
}

// decide refuses what the owner of the From domain wants refused, puts off what DNS trouble hides, and lets the
// rest in with honest evidence.
func (v *verifier) decide(found verdict, mail []byte) error {
	if found.verified() {
		return nil
	}

	if found.DMARC.Trouble {
		return v.putOff(mail)
	}

	if found.from.Domain == v.domain {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 26},
			Message: "Mail from " + v.domain + " must be authenticated; no aligned DKIM signature or SPF pass was found"}
	}

	if policy := found.DMARC.Policy; found.DMARC.Result == authentication.Fail && (policy == authentication.PolicyReject || policy == authentication.PolicyQuarantine && v.options.RefuseQuarantine) {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 26},
			Message: fmt.Sprintf("DMARC policy of %s is %s and neither DKIM nor SPF passed aligned", found.DMARC.Domain, policy)}
	}

	return nil
}

// putOff refuses a mail for now whose sender a lookup that failed may hide; nil = it was put off often enough.
func (v *verifier) putOff(mail []byte) error {
	if v.tries.next(mail) > maxTries {
		return nil
	}
	return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 5},
		Message: "DNS lookups for the sender's domain failed, please try again later"}
}

// claims is the context that evidence carries about a mail.
type claims struct {
	DKIM      []authentication.Signature `json:"dkim"`
	SPF       authentication.SPF         `json:"spf"`
	DMARC     authentication.DMARC       `json:"dmarc"`
	ARC       *authentication.ARC        `json:"arc,omitempty"`
	IP        string                     `json:"ip"`
	HELO      string                     `json:"helo"`
	TLS       string                     `json:"tls,omitempty"`
	Addressed bool                       `json:"addressed"` // To or Cc name the agent, signed or not
}

func (v verdict) claims(env envelope, addressed bool) json.RawMessage {
	signatures := v.DKIM
	if signatures == nil {
		signatures = []authentication.Signature{}
	}

	encoded, err := json.Marshal(claims{
		DKIM: signatures, SPF: v.SPF, DMARC: v.DMARC, ARC: v.ARC, IP: env.ip, HELO: message.Clean(env.helo, 255), TLS: env.tls, Addressed: addressed,
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

// subjectOf is the subject of evidence about a mailbox (RFC 6068).
func subjectOf(box message.Mailbox) string { return "mailto:" + box.Address() }

// evidence states what the mail's own proof says about its sender (message contract, section 10): the domain
// vouches for the mailbox name, so the assurance is the domain's.
func (v *verifier) evidence(found verdict, env envelope, to recipient, claims json.RawMessage) []identity.Evidence {
	if !found.verified() {
		return nil
	}
	proof := identity.Transport(identity.TransportProof{
		Domain: v.options.Domain, Subject: subjectOf(found.from), Method: evidenceMethods[found.method],
		Assurance: identity.AssuranceDomain, Recipient: to.address, Addressed: found.addressing.by, KeyID: found.keyID, IssuedAt: env.received,
	})
	proof.Claims, proof.Source = claims, &identity.Source{Transport: normalized.ViaEmail}
	return []identity.Evidence{proof}
}

// rejected says for the audit log that a mail proves its author, and not that it was meant for the recipient.
func (v *verifier) rejected(found verdict) []identity.Rejection {
	if found.disowned == "" {
		return nil
	}
	return []identity.Rejection{{
		Code: identity.CodeNotAddressed, Reason: "nothing proves that the mail was meant for this agent: " + found.addressing.why,
		Issuer: v.options.Domain, Subject: "mailto:" + found.from.Address(), Method: evidenceMethods[found.disowned],
	}}
}

// tryCounter remembers how often a mail was put off because of DNS trouble, so that it is not put off for ever.
// It is bounded by count and time and lives in this process: a restart only costs the sender one more try.
type tryCounter struct {
	now func() time.Time
	mu  sync.Mutex
	by  *simplelru.LRU[[sha256.Size]byte, tries]
}

type tries struct {
	count int
	until time.Time
}

const (
	maxTriesKept = 10_000
	triesLife    = 24 * time.Hour
)

func newTryCounter(now func() time.Time) *tryCounter {
	by, _ := simplelru.NewLRU[[sha256.Size]byte, tries](maxTriesKept, nil)
	return &tryCounter{now: now, by: by}
}

// next counts one more try of the mail and returns the number.
func (t *tryCounter) next(mail []byte) int {
	key, now := sha256.Sum256(mail), t.now()
	t.mu.Lock()
	defer t.mu.Unlock()

	entry, _ := t.by.Get(key)
	if now.After(entry.until) {
		entry.count = 0
	}

	entry.count++
	entry.until = now.Add(triesLife)
	t.by.Add(key, entry)
	return entry.count
}
