package fault_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"inbox/internal/fault"
)

// TestInWords: no line for an operator has the words of a programming language.
func TestInWords(t *testing.T) {
	dialled := func(cause error) error {
		at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 25}
		return fmt.Errorf("look: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: cause})
	}
	called := func(cause error) error { return &url.Error{Op: "Get", URL: "https://a.example/", Err: cause} }
	old := &x509.Certificate{DNSNames: []string{"b.example", "c.example"}, NotAfter: time.Date(2020, 2, 3, 0, 0, 0, 0, time.UTC)}
	future := &x509.Certificate{NotBefore: time.Now().Add(48 * time.Hour)}

	for want, err := range map[string]error{
		"":                                                                         nil,
		"nothing listens at 192.0.2.1:25":                                          dialled(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"nothing listens":                                                          syscall.ECONNREFUSED,
		"192.0.2.1:25 does not answer in time":                                     dialled(context.DeadlineExceeded),
		"the other side does not answer in time":                                   called(os.ErrDeadlineExceeded),
		"there is no way from here to 192.0.2.1:25":                                dialled(syscall.EHOSTUNREACH),
		"there is no way from here to the other side":                              syscall.ENETUNREACH,
		"192.0.2.1:25 cut the connection":                                          dialled(syscall.ECONNRESET),
		"the other side ended the connection without an answer":                    called(io.EOF),
		"another program listens at 192.0.2.1:25":                                  dialled(syscall.EADDRINUSE),
		"the DNS does not know a.example":                                          called(&net.DNSError{Err: "no such host", Name: "a.example", Server: "127.0.0.1:53", IsNotFound: true}),
		"the name server does not answer about a.example":                          &net.DNSError{Err: "i/o timeout", Name: "a.example", IsTimeout: true},
		"the name server cannot answer about a.example":                            &net.DNSError{Err: "server misbehaving", Name: "a.example", IsTemporary: true},
		"the certificate is for b.example, c.example and not for a.example":        called(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: old, Host: "a.example"}}),
		"the certificate is for no name and not for a.example":                     x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a.example"},
		"the certificate ended on 2020-02-03":                                      called(x509.CertificateInvalidError{Cert: old, Reason: x509.Expired}),
		"the certificate begins on " + future.NotBefore.UTC().Format("2006-01-02"): x509.CertificateInvalidError{Cert: future, Reason: x509.Expired},
		"the certificate is of an authority that this machine does not know":       called(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}),
		"the certificate is not valid":                                             &tls.CertificateVerificationError{Err: errors.New("x509: too many intermediates")},
		"it does not speak TLS":                                                    called(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}),
		"the other side ends TLS: unrecognized name":                               called(tls.AlertError(112)),
		"there is no program tool":                                                 &exec.Error{Name: "tool", Err: exec.ErrNotFound},
		"there is no /a/file":                                                      &fs.PathError{Op: "open", Path: "/a/file", Err: syscall.ENOENT},
		"this user has no permission for /a/file":                                  fmt.Errorf("key: %w", &fs.PathError{Op: "open", Path: "/a/file", Err: syscall.EACCES}),
		"no room is left for /a/file":                                              &fs.PathError{Op: "write", Path: "/a/file", Err: syscall.ENOSPC},
		"something else happened":                                                  called(errors.New("something\n else happened")),
	} {
		if got := fault.InWords(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
