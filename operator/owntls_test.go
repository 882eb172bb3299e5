package operator_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"inbox/operator"
)

// authorityOf returns a certificate for a name, by an authority that no one knows, and that authority as PEM.
func authorityOf(t *testing.T, name string, until time.Time) (certificate tls.Certificate, authority []byte) {
	t.Helper()
	make509 := func(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}

	root, leaf := newKey(), newKey()
	parent := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "staging"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	top := make509(parent, parent, root, root)
	der := make509(&x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: until, DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, parent, leaf, root)
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: leaf, Leaf: parsed}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: top})
}

// TestOwnCertificateIsKnown: a command trusts its own server's certificate of an unknown authority because the server was issued it, and for no
// other reason.
func TestOwnCertificateIsKnown(t *testing.T) {
	const name = "agents.example"
	good, authority := authorityOf(t, name, time.Now().Add(time.Hour))
	expired, _ := authorityOf(t, name, time.Now().Add(-time.Minute))
	elsewhere, _ := authorityOf(t, "other.example", time.Now().Add(time.Hour))
	twin, _ := authorityOf(t, name, time.Now().Add(time.Hour))
	file := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		t.Fatal(err)
	}

	for what, c := range map[string]struct {
		shown  tls.Certificate
		file   string
		issued []*x509.Certificate
		known  bool
	}{
		"issued":                     {good, "", []*x509.Certificate{twin.Leaf, good.Leaf}, true},
		"by the authority of a file": {good, file, nil, true},
		"unknown":                    {good, "", nil, false},
		"another with the same name": {twin, "", []*x509.Certificate{good.Leaf}, false},
		"issued and expired":         {expired, "", []*x509.Certificate{expired.Leaf}, false},
		"issued for another name":    {elsewhere, "", []*x509.Certificate{elsewhere.Leaf}, false},
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			server.Config.ErrorLog = nil
			server.TLS = &tls.Config{Certificates: []tls.Certificate{c.shown}}
			server.StartTLS()
			defer server.Close()
			config := operator.OwnTLS(name, c.file, func(context.Context) ([]*x509.Certificate, error) { return c.issued, nil })
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
			response, err := client.Get(server.URL)
			if err == nil {
				_ = response.Body.Close()
			}
			if (err == nil) != c.known {
				t.Errorf("known %v (%v); want %v", err == nil, err, c.known)
			}
		})
	}
}
