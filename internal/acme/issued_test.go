package acme

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"inbox/exchange/exchangetest"
)

// certificateFor returns a certificate as PEM.
func certificateFor(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestUnreadableCertificateHidesNoOther: damaged files are skipped, and each is reported once with its name and what to do, until it can be read again.
func TestUnreadableCertificateHidesNoOther(t *testing.T) {
	documents := exchangetest.NewDocuments()
	files := newStorage(documents, slog.New(slog.DiscardHandler))
	put := func(name string, content []byte) {
		t.Helper()
		if err := files.Store(t.Context(), "certificates/authority/"+name+"/"+name+".crt", content); err != nil {
			t.Fatal(err)
		}
	}
	put("a.example", []byte("not PEM"))
	put("b.example", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("not DER")}))
	put("d.example", certificateFor(t, "d.example"))
	const broken = "certificates/authority/c.example/c.example.crt"
	if err := documents.Put(t.Context(), KeyNamespace, broken, []byte("not a document"), time.Time{}); err != nil {
		t.Fatal(err)
	}

	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	look := func(names ...string) {
		t.Helper()
		issued, err := Issued(t.Context(), documents, logger)
		if err != nil || len(issued) != len(names) {
			t.Fatalf("%d certificates, %v", len(issued), err)
		}
		for i, name := range names {
			if issued[i].VerifyHostname(name) != nil {
				t.Errorf("certificate %d is for %v", i, issued[i].DNSNames)
			}
		}
	}
	look("d.example")
	look("d.example")
	for _, name := range []string{"a.example", "b.example", "c.example"} {
		file := "certificates/authority/" + name + "/" + name + ".crt"
		if strings.Count(log.String(), "file="+file) != 1 || !strings.Contains(log.String(), "key = '"+file+"'") {
			t.Errorf("of %s the log says\n%s", name, log.String())
		}
	}

	put("a.example", certificateFor(t, "a.example"))
	look("a.example", "d.example")
	put("a.example", nil)
	look("d.example")
	if strings.Count(log.String(), "file=certificates/authority/a.example/") != 2 {
		t.Errorf("a file that is damaged again is not reported:\n%s", log.String())
	}
}
