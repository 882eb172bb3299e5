package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Certificate is what the server shows to those who ask for a name by TLS.
type Certificate struct {
	Name    string    `json:"name"` // that was asked for
	Names   []string  `json:"names,omitempty"`
	Issuer  string    `json:"issuer,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Problem string    `json:"problem,omitempty"` // why it is none that others accept
	Renewal string    `json:"renewal,omitempty"` // why the last try to renew it failed; empty = none did
}

const (
	// certificatePatience bounds one look at the own listener.
	certificatePatience = 3 * time.Second
	// maxCertificateNames bounds how many names are looked at.
	maxCertificateNames = 50
)

// Certificates asks the running server of this machine for each of its names, and returns what it shows. None where http.tls is off: what
// stands before the server has them.
func (o *Operator) Certificates(ctx context.Context) ([]Certificate, error) {
	c := o.options.Current()
	if c.HTTP.TLS == "off" {
		return []Certificate{}, nil
	}
	conditions, err := o.options.Store.NoticeConditions(ctx)
	if err != nil {
		return nil, err
	}
	failed := map[string]string{}
	for _, one := range conditions {
		if one.Kind == exchange.NoticeCertificate && one.State == exchange.ConditionOpen {
			failed[one.Subject] = one.Reason
		}
	}

	_, _, place := o.options.ownListener()
	names := c.CertificateNames()
	found := make([]Certificate, min(len(names), maxCertificateNames))
	var looks errgroup.Group
	looks.SetLimit(8)
	for i := range found {
		looks.Go(func() error {
			found[i] = shownCertificate(ctx, place, names[i])
			found[i].Renewal = failed["renewal of "+names[i]]
			return nil
		})
	}
	return found, looks.Wait()
}

// shownCertificate makes a handshake for a name and says nothing more.
func shownCertificate(ctx context.Context, place, name string) Certificate {
	found := Certificate{Name: name}
	ctx, cancel := context.WithTimeout(ctx, certificatePatience)
	defer cancel()
	asked := strings.Replace(name, "*", "any", 1)

	// What the listener shows is looked at, whatever it is, and nothing is sent to it.
	dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{ServerName: asked, MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}} //nolint:gosec // see above
	conn, err := dialer.DialContext(ctx, "tcp", place)
	if err != nil {
		found.Problem = "the listener at " + place + " shows none: " + fault.InWords(err)
		return found
	}
	defer func() { _ = conn.Close() }()

	shown := conn.(*tls.Conn).ConnectionState().PeerCertificates
	leaf := shown[0]
	found.Names, found.Issuer, found.Since, found.Until = leaf.DNSNames, leaf.Issuer.String(), leaf.NotBefore.UTC(), leaf.NotAfter.UTC()
	between := x509.NewCertPool()
	for _, one := range shown[1:] {
		between.AddCert(one)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: asked, Intermediates: between}); err != nil {
		found.Problem = fault.InWords(err)
	}
	return found
}
