package httpserver

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"inbox/internal/telemetry"
)

const certificateCheckEvery = time.Minute

// certificate is a pair of files that may be renewed while the server runs.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mutex    sync.Mutex
	current  *tls.Certificate
	modified time.Time // of the certificate file
	checked  time.Time
}

// TLSConfig returns the settings of a listener that speaks TLS with a certificate from two PEM files and picks up a
// renewed pair while running. Mail's STARTTLS shares it.
func TLSConfig(certFile, keyFile string, logger *slog.Logger) (*tls.Config, error) {
	certificate, err := newCertificate(certFile, keyFile, logger)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.get}, nil
}

func newCertificate(certFile, keyFile string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, logger: logger}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("http.cert_file, http.key_file: %w", err)
	}
	return c, nil
}

// get serves tls.Config.GetCertificate. A renewed pair that cannot be read leaves the old one in use.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if time.Since(c.checked) < certificateCheckEvery {
		return c.current, nil
	}
	if err := c.reload(); err != nil {
		c.logger.Error("renewed certificate cannot be used; the old one stays", "file", c.certFile, "error", err)
	}
	return c.current, nil
}

func (c *certificate) reload() error {
	c.checked = time.Now()
	info, err := os.Stat(c.certFile)
	if err != nil || info.ModTime().Equal(c.modified) {
		return err
	}
	return c.load()
}

func (c *certificate) load() error {
	info, err := os.Stat(c.certFile)
	if err != nil {
		return err
	}

	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}

	c.current, c.modified, c.checked = &pair, info.ModTime(), time.Now()
	if pair.Leaf != nil {
		for _, name := range pair.Leaf.DNSNames {
			telemetry.CertificateNotAfter.WithLabelValues(name).Set(float64(pair.Leaf.NotAfter.Unix()))
		}
	}
	return nil
}
