package acme

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"strings"
)

// Issued returns the certificates that authorities have issued to this server, each without its chain.
func Issued(ctx context.Context, documents Documents) (issued []*x509.Certificate, err error) {
	files := newStorage(documents, slog.New(slog.DiscardHandler))
	names, err := files.List(ctx, "certificates", true)
	if err != nil {
		return nil, fmt.Errorf("list certificates: %w", err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".crt") {
			continue
		}
		chain, err := files.Load(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		block, _ := pem.Decode(chain)
		if block == nil {
			return nil, fmt.Errorf("read certificate: %s is not PEM", name)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read certificate %s: %w", name, err)
		}
		issued = append(issued, certificate)
	}
	return issued, nil
}
