package peer

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/emersion/go-smtp"
)

// DNSRecord is one TXT record that has to be found for mail to verify.
type DNSRecord struct {
	Name  string // such as inbox._domainkey.example.org
	Value string
}

// MailOptions configure a Mail. The zero value is alice of wonderland.example with a DNS server of its own.
type MailOptions struct {
	Domain   string // empty = wonderland.example
	User     string // empty = alice
	Name     string // display name; empty = Alice
	Resolver string // host:port to verify with; empty = the peer's own DNS server
	DNS      string // host:port of the peer's own DNS server; empty = a free port of 127.0.0.1

	// Beside is a peer that is there already and whose DNS server this one uses, too; nil = it has its own. It must be closed later.
	Beside *Mail

	// Fault is what Post will do wrong: the domain then has no record that proves the sender in another way.
	Fault string

	// Reply makes the peer answer mail that verifies with this text, through ReplyVia (host:port of an SMTP server),
	// so that two peers can talk to each other.
	Reply    func(text string) string
	ReplyVia string
}

// Mail is one person's mail domain: a DNS server with its SPF, DKIM and DMARC records, a sender that signs with DKIM,
// and an SMTP server that takes mail only when its DKIM signature verifies and belongs to the domain in From. A
// server under test uses its Resolver for DNS and its SMTPAddr as smarthost.
type Mail struct {
	domain, user, name string
	selector           string // of the DKIM key: another one for each peer, because servers remember records
	key                *rsa.PrivateKey
	zone               *zone
	ownsZone           bool
	lookup             *net.Resolver
	sink               net.Listener
	server             *smtp.Server
	waiting            *waiting
	reply              func(text string) string
	replyVia           string
	life               context.Context // of replies under way
	end                context.CancelFunc
	work               sync.WaitGroup
}

// NewMail starts the DNS server and the SMTP server. Close stops them.
func NewMail(options MailOptions) (*Mail, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make DKIM key: %w", err)
	}

	m := &Mail{
		domain: orDefault(options.Domain, "wonderland.example"), user: orDefault(options.User, "alice"),
		name: orDefault(options.Name, "Alice"), key: key, waiting: newWaiting(),
		reply: options.Reply, replyVia: options.ReplyVia, selector: "p" + strings.ToLower(newID()),
	}

	if options.Beside != nil {
		m.zone = options.Beside.zone
	} else if m.zone, err = newZone(options.DNS); err != nil {
		return nil, err
	}
	m.ownsZone = options.Beside == nil
	if err := m.publishOwn(options.Fault); err != nil {
		m.closeZone()
		return nil, err
	}
	if m.sink, err = listen(""); err != nil {
		m.closeZone()
		return nil, fmt.Errorf("listen for mail: %w", err)
	}

	m.lookup = resolver(orDefault(options.Resolver, m.zone.address))
	m.life, m.end = context.WithCancel(context.Background())
	m.serve()
	return m, nil
}

// publishOwn makes the domain one whose mail passes DMARC by DKIM and by SPF, or one with a fault.
func (m *Mail) publishOwn(fault string) error {
	own := m.DKIMRecord()
	if fault == FaultKeyMismatch {
		other, err := rsa.GenerateKey(rand.Reader, m.key.N.BitLen())
		if err != nil {
			return fmt.Errorf("make another DKIM key: %w", err)
		}
		own.Value = dkimRecord(&other.PublicKey)
	}
	m.zone.addText(own.Name, own.Value)

	const elsewhere, dmarcNone = "v=spf1 ip4:192.0.2.1 -all", "v=DMARC1; p=none"
	switch fault {
	case FaultUnsigned, FaultDKIMBroken, FaultKeyMismatch, FaultExpired: // what SPF proves would hide them
		m.zone.addText("_dmarc."+m.domain, dmarcNone)
	case FaultSPFFail:
		m.zone.addText(m.domain, elsewhere)
		m.zone.addText("_dmarc."+m.domain, dmarcNone)
	case FaultDMARCReject:
		m.zone.addText(m.domain, elsewhere)
		m.zone.addText("_dmarc."+m.domain, "v=DMARC1; p=reject")
	default:
		m.zone.addText("_dmarc."+m.domain, "v=DMARC1; p=reject")
		m.zone.addText(m.domain, "v=spf1 ip4:127.0.0.1 -all")
	}

	for _, record := range []string{"%[1]s. 60 IN MX 10 %[1]s.", "%[1]s. 60 IN A 127.0.0.1"} {
		if err := m.zone.add(fmt.Sprintf(record, m.domain)); err != nil {
			return err
		}
	}
	return nil
}

// Close stops both servers and waits for what they started.
func (m *Mail) Close() error {
	m.end()
	err := m.server.Close()
	_ = m.sink.Close() // go-smtp forgets a listener whose Serve has not begun yet
	m.work.Wait()
	m.closeZone()
	return err
}

func (m *Mail) closeZone() {
	if m.ownsZone {
		m.zone.close()
	}
}

// Address returns user@domain.
func (m *Mail) Address() string { return m.user + "@" + m.domain }

// SMTPAddr returns host:port of the SMTP server that takes mail for anyone, as a smarthost does.
func (m *Mail) SMTPAddr() string { return m.sink.Addr().String() }

// Resolver returns host:port of the DNS server.
func (m *Mail) Resolver() string { return m.zone.address }

// Publish adds a TXT record to the DNS server, such as the DKIM key of a server under test.
func (m *Mail) Publish(record DNSRecord) { m.zone.addText(record.Name, record.Value) }

// DKIMRecord returns the record of the peer's own key (RFC 6376, section 3.6.1).
func (m *Mail) DKIMRecord() DNSRecord {
	return DNSRecord{Name: m.selector + "._domainkey." + m.domain, Value: dkimRecord(&m.key.PublicKey)}
}

func dkimRecord(key *rsa.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // impossible for an RSA key that was made here
	}
	return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}
