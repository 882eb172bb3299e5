package load

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Authority issues certificates that only those believe who were given its file.
type Authority struct {
	File string // PEM, with its own certificate

	directory   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	issued      int
}

// NewAuthority makes an authority that writes its files into a directory.
func NewAuthority(directory, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}

	encoded, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}

	certificate, err := x509.ParseCertificate(encoded)
	if err != nil {
		return nil, err
	}

	authority := &Authority{File: filepath.Join(directory, name+".pem"), directory: directory, certificate: certificate, key: key}
	return authority, writePEM(authority.File, "CERTIFICATE", encoded, 0o644)
}

// Issue writes a certificate for a host and its key into two files.
func (a *Authority) Issue(hosts ...string) (certificateFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}

	encoded, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return "", "", fmt.Errorf("issue certificate for %s: %w", hosts[0], err)
	}

	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}

	a.issued++
	base := filepath.Join(a.directory, fmt.Sprintf("%s-%d", hosts[0], a.issued))
	if err := writePEM(base+".pem", "CERTIFICATE", encoded, 0o644); err != nil {
		return "", "", err
	}

	return base + ".pem", base + ".key", writePEM(base+".key", "PRIVATE KEY", private, 0o600)
}

// Certificate is Issue for a listener of this process.
func (a *Authority) Certificate(hosts ...string) (tls.Certificate, error) {
	certificate, key, err := a.Issue(hosts...)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.LoadX509KeyPair(certificate, key)
}

func writePEM(file, kind string, encoded []byte, mode os.FileMode) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: encoded}), mode)
}
