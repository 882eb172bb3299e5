package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// InWords puts an error of the network, the DNS, TLS or a file into words for an operator, on one line: what was found, and where. Of
// others it returns the text, without what Go puts before it.
func InWords(err error) string {
	if err == nil {
		return ""
	}
	for _, words := range []func(error) string{dnsWords, certificateWords, connectionWords, fileWords} {
		if text := words(err); text != "" {
			return text
		}
	}
	return strings.Join(strings.Fields(operation.ReplaceAllString(err.Error(), "")), " ")
}

// operation is what packages of Go put before the cause.
var operation = regexp.MustCompile(`\b(?:(?:dial|read|write|listen|accept) (?:tcp|udp|unix)[46]?(?: [^\s:]+(?::[0-9]+)?(?:->[^\s:]+:[0-9]+)?)?: |(?:Get|Post|Head) "[^"]*": |net/http: |lookup \S+(?: on \S+)?: )`)

func dnsWords(err error) string {
	failure, is := errors.AsType[*net.DNSError](err)
	switch {
	case !is:
		return ""
	case failure.IsNotFound:
		return "the DNS does not know " + failure.Name
	case failure.IsTimeout:
		return "the name server does not answer about " + failure.Name
	}
	return "the name server cannot answer about " + failure.Name
}

func certificateWords(err error) string {
	if wrong, is := errors.AsType[x509.HostnameError](err); is {
		names := strings.Join(wrong.Certificate.DNSNames, ", ")
		if names == "" {
			names = "no name"
		}
		return fmt.Sprintf("the certificate is for %s and not for %s", names, wrong.Host)
	}
	if wrong, is := errors.AsType[x509.CertificateInvalidError](err); is && wrong.Reason == x509.Expired {
		if now := time.Now(); wrong.Cert != nil && now.Before(wrong.Cert.NotBefore) {
			return "the certificate begins on " + wrong.Cert.NotBefore.UTC().Format(time.DateOnly)
		} else if wrong.Cert != nil {
			return "the certificate ended on " + wrong.Cert.NotAfter.UTC().Format(time.DateOnly)
		}
	}
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "the certificate is of an authority that this machine does not know"
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return "the certificate is not valid"
	}
	if _, is := errors.AsType[tls.RecordHeaderError](err); is || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return "it does not speak TLS"
	}
	if alert, is := errors.AsType[tls.AlertError](err); is {
		return "the other side ends TLS: " + strings.TrimPrefix(alert.Error(), "tls: ")
	}
	return ""
}

func connectionWords(err error) string {
	where, place := "", "the other side"
	if failure, is := errors.AsType[*net.OpError](err); is && failure.Addr != nil {
		where, place = " at "+failure.Addr.String(), failure.Addr.String()
	}

	timeout, is := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens" + where
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program listens" + where
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return "there is no way from here to " + place
	case errors.Is(err, context.DeadlineExceeded), is && timeout.Timeout():
		return place + " does not answer in time"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return place + " cut the connection"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return place + " ended the connection without an answer"
	}
	return ""
}

func fileWords(err error) string {
	if failure, is := errors.AsType[*exec.Error](err); is && errors.Is(err, exec.ErrNotFound) {
		return "there is no program " + failure.Name
	}
	failure, is := errors.AsType[*fs.PathError](err)
	switch {
	case !is:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "there is no " + failure.Path
	case errors.Is(err, fs.ErrPermission):
		return "this user has no permission for " + failure.Path
	case errors.Is(err, syscall.ENOSPC):
		return "no room is left for " + failure.Path
	}
	return ""
}
