package acme

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"

	"inbox/internal/fault"
)

// Issued returns the certificates that authorities have issued to this server, each without its chain. Files that cannot be read as a certificate are skipped;
// logger is told of each.
func Issued(ctx context.Context, documents Documents, logger *slog.Logger) (issued []*x509.Certificate, err error) {
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
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was replaced or removed since the list was read
		}
		var certificate *x509.Certificate
		if err == nil {
			certificate, err = leafOf(chain)
		}
		if ctx.Err() != nil || fault.Is(err, fault.Unavailable) { // of the database, not of this file
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		if err != nil {
			warnOnce(ctx, logger, name, err)
			continue
		}
		unreadable.Delete(name)
		issued = append(issued, certificate)
	}
	return issued, nil
}

func leafOf(chain []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(chain)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// unreadable has the files of which a warning was logged, by their names.
var unreadable sync.Map

// warnOnce warns of a file until it can be read again: certificates are looked up for each connection of this server to itself.
func warnOnce(ctx context.Context, logger *slog.Logger, name string, cause error) {
	if _, again := unreadable.LoadOrStore(name, true); again {
		return
	}
	logger.WarnContext(ctx, "a certificate in the database cannot be read and is skipped", "file", name, "error", cause,
		"remedy", "DELETE FROM documents WHERE namespace = '"+KeyNamespace+"' AND key = '"+name+"', then restart the server: it orders the certificate again")
}
