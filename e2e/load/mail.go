package load

import (
	"bufio"
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"net"
	"net/smtp"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

// MailDomain is a domain whose mails are signed.
type MailDomain struct {
	Name     string
	Selector string
	Key      *rsa.PrivateKey
}

// NewMailDomain makes a domain with a key and publishes its DKIM, SPF and DMARC records.
func NewMailDomain(names *Names, name string) (MailDomain, error) {
	key, err := NewKey()
	if err != nil {
		return MailDomain{}, err
	}
	domain := MailDomain{Name: name, Selector: "load", Key: key}
	names.SetTXT(domain.Record())
	names.SetTXT(name, "v=spf1 ip4:127.0.0.1 -all")
	names.SetTXT("_dmarc."+name, "v=DMARC1; p=reject")
	return domain, nil
}

// Record is the name and the value of the TXT record with the public key (RFC 6376, section 3.6.1).
func (d MailDomain) Record() (name, value string) {
	return d.Selector + "._domainkey." + d.Name, "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(publicDER(d.Key))
}

// Mail is a message to one agent. Message-ID must be new for each message.
type Mail struct {
	From, To  string
	MessageID string // without brackets
	Subject   string
	Body      string
	Extra     map[string]string // further header fields
}

// Bytes writes the mail, without a signature.
func (m Mail) Bytes() []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%s>\r\n", m.From, m.To, m.Subject,
		time.Now().Format(time.RFC1123Z), m.MessageID)

	for name, value := range m.Extra {
		fmt.Fprintf(&text, "%s: %s\r\n", name, value)
	}

	text.WriteString("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n")
	text.WriteString(strings.ReplaceAll(m.Body, "\n", "\r\n"))
	text.WriteString("\r\n")
	return text.Bytes()
}

// Sign puts the domain's signature in front of a mail.
func (d MailDomain) Sign(mail []byte) ([]byte, error) {
	var signed bytes.Buffer
	err := dkim.Sign(&signed, bytes.NewReader(mail), &dkim.SignOptions{
		Domain:                 d.Name,
		Selector:               d.Selector,
		Signer:                 d.Key,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed,
		BodyCanonicalization:   dkim.CanonicalizationRelaxed,
	})
	if err != nil {
		return nil, fmt.Errorf("sign mail: %w", err)
	}
	return signed.Bytes(), nil
}

// MailSender is one SMTP connection that brings many mails, one after the other.
type MailSender struct {
	client     *smtp.Client
	connection net.Conn
}

// DialMail connects to an SMTP server.
func DialMail(address string) (*MailSender, error) {
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("connect for mail: %w", err)
	}

	_ = connection.SetDeadline(time.Now().Add(time.Minute))
	client, err := smtp.NewClient(connection, "localhost")
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("greet mail server: %w", err)
	}
	if err := client.Hello("load.test"); err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("greet mail server: %w", err)
	}

	return &MailSender{client: client, connection: connection}, nil
}

// Send brings one mail. A nil error means that the server took responsibility for it (250 after the final dot).
func (s *MailSender) Send(from, to string, mail []byte) error {
	_ = s.connection.SetDeadline(time.Now().Add(time.Minute))
	if err := s.client.Mail(from); err != nil {
		return fmt.Errorf("MAIL FROM: %w", err)
	}
	if err := s.client.Rcpt(to); err != nil {
		return fmt.Errorf("RCPT TO: %w", err)
	}

	data, err := s.client.Data()
	if err != nil {
		return fmt.Errorf("DATA: %w", err)
	}
	if _, err := bufio.NewReader(bytes.NewReader(mail)).WriteTo(data); err != nil {
		return fmt.Errorf("write mail: %w", err)
	}
	if err := data.Close(); err != nil {
		return fmt.Errorf("end of mail: %w", err)
	}

	return nil
}

// Close ends the connection.
func (s *MailSender) Close() { _ = s.connection.Close() }
