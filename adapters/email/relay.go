package email

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"inbox/adapters/email/outbound"
	"inbox/internal/fault"
)

// SmarthostAddress returns host:port of a smarthost URL, for the dialer that must allow it.
func SmarthostAddress(text string) (string, error) { return outbound.SmarthostAddress(text) }

// SmarthostTLS returns the settings of TLS with a relay whose certificate comes from the authorities in a PEM file. It returns nil without a file,
// which means the authorities of the operating system.
func SmarthostTLS(rootsFile string) (*tls.Config, error) {
	if rootsFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(rootsFile)
	if err != nil {
		return nil, fmt.Errorf("mail.smarthost_roots_file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("mail.smarthost_roots_file: %s has no certificate in PEM", rootsFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}

// Dialer opens connections to mail servers.
type Dialer = outbound.Dialer

// Relay is the smarthost with what deliveries use to reach it.
type Relay struct {
	URL          string // mail.smarthost
	RootsFile    string // mail.smarthost_roots_file
	Hostname     string // in EHLO
	AllowPrivate bool
	Dialer       func(address string) Dialer // permits the relay's address, which the operator wrote
}

// Remedies of a relay, by the step that failed.
var relayRemedies = map[string]string{
	outbound.StepConnect:  "correct host and port of mail.smarthost, or ask your provider; many clouds block port 25, and relays listen on 587 and 465",
	outbound.StepSTARTTLS: "use a port with TLS: smtps://…:465, or the submission port 587; the server never sends a password in the clear",
	outbound.StepTLS:      "write the name that the relay's certificate has into mail.smarthost; for a certificate of an own authority write its PEM file into mail.smarthost_roots_file",
	outbound.StepLogin:    "correct user and password in mail.smarthost, with special characters percent-encoded; some providers want a password for applications",
	outbound.StepSender:   "let the relay accept senders of your domain: most providers want the domain verified first",
}

// Examine talks with the relay as a delivery does, up to a sender, which it takes back: no mail is sent.
func (r Relay) Examine(ctx context.Context, from string) Finding {
	const name = "mail.smarthost"
	address, encrypted, err := r.try(ctx, from)
	step, stepped := errors.AsType[*outbound.StepError](err)
	switch {
	case stepped:
		return Finding{Name: name, Status: FindingFail, Detail: fault.InWords(err), Remedy: relayRemedies[step.Step]}
	case err != nil:
		return Finding{Name: name, Status: FindingFail, Detail: fault.InWords(err), Remedy: "correct mail.smarthost and mail.smarthost_roots_file"}
	case !encrypted:
		return Finding{Name: name, Status: FindingWarn, Detail: address + " accepts the sender " + from + ", but mail travels there unencrypted", Remedy: relayRemedies[outbound.StepSTARTTLS]}
	}
	return Finding{Name: name, Status: FindingOK, Detail: address + " accepts the sender " + from}
}

func (r Relay) try(ctx context.Context, from string) (address string, encrypted bool, err error) {
	if address, err = SmarthostAddress(r.URL); err != nil {
		return "", false, err
	}
	config, err := SmarthostTLS(r.RootsFile)
	if err != nil {
		return address, false, err
	}
	host, err := outbound.NewSmarthost(outbound.SmarthostOptions{URL: r.URL, Hostname: r.Hostname, Dialer: r.Dialer(address), TLS: config, Relaxed: r.AllowPrivate})
	if err != nil {
		return address, false, err
	}
	defer host.Close()
	encrypted, err = host.Try(ctx, from)
	return address, encrypted, err
}
