package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"time"
)

// Issued returns the certificates that this server has from an authority.
type Issued func(ctx context.Context) ([]*x509.Certificate, error)

// issuedPatience bounds how long the own certificates are looked up.
const issuedPatience = 5 * time.Second

// OwnTLS returns the settings of TLS for connections to this server's own listener. Its certificate must be valid for the name now, and either
// come from an authority of the operating system or of the file, or be one of those that this server was issued: an authority that only tests
// certificates, or a private one, needs no further setting.
func OwnTLS(name, file string, issued Issued) *tls.Config {
	return &tls.Config{
		ServerName: name, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it
		VerifyConnection: func(state tls.ConnectionState) error {
			leaf := state.PeerCertificates[0]
			options := x509.VerifyOptions{DNSName: name, Roots: ownRoots(file), Intermediates: x509.NewCertPool()}
			for _, one := range state.PeerCertificates[1:] {
				options.Intermediates.AddCert(one)
			}
			_, err := leaf.Verify(options)
			// Name and time are checked before the authority is looked for.
			if !errors.As(err, new(x509.UnknownAuthorityError)) || issued == nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), issuedPatience)
			defer cancel()
			own, failed := issued(ctx)
			if slices.ContainsFunc(own, leaf.Equal) {
				return nil
			}
			return errors.Join(err, failed)
		},
	}
}

// ownRoots are the authorities of the system, and the certificates that the operator wrote.
func ownRoots(file string) *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if content, err := os.ReadFile(file); err == nil {
		pool.AppendCertsFromPEM(content)
	}
	return pool
}
