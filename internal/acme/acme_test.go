package acme

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"inbox/exchange/exchangetest"
)

// TestCertificateOfAnotherNodeIsTaken: a node that begins while another one stores a renewed certificate reads the new key with the old certificate.
func TestCertificateOfAnotherNodeIsTaken(t *testing.T) {
	const name = "agents.example"
	documents := exchangetest.NewDocuments()
	client, err := New(Options{
		Names: []string{name}, Documents: documents, Logger: slog.New(slog.DiscardHandler), Directory: "https://127.0.0.1:1/dir", Listen: "127.0.0.1:1",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	issuer := client.issuer.IssuerKey()
	store := func(key, value string) {
		t.Helper()
		if err := client.config.Storage.Store(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	newKey, _ := pair(t, name)
	oldKey, oldCertificate := pair(t, name)
	store(certmagic.StorageKeys.SiteMeta(issuer, name), `{"sans":["`+name+`"]}`)
	store(certmagic.StorageKeys.SitePrivateKey(issuer, name), newKey)
	store(certmagic.StorageKeys.SiteCert(issuer, name), oldCertificate)

	if client.takeStored(t.Context()); !client.End(name).IsZero() {
		t.Error("a certificate counts without its key")
	}
	store(certmagic.StorageKeys.SitePrivateKey(issuer, name), oldKey)
	if client.takeStored(t.Context()); client.End(name).IsZero() {
		t.Error("the certificate is not taken once its key is there")
	}
}

// pair makes a key and a certificate of it.
func pair(t *testing.T, name string) (key, certificate string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return block("PRIVATE KEY", encoded), block("CERTIFICATE", signed)
}
