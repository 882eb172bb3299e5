package safehttp

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
)

// Unconnected reports whether an exchange, or a dial, failed before there was a connection that could carry a request: nothing in the request
// can have caused it.
func Unconnected(err error) bool {
	if operation, is := errors.AsType[*net.OpError](err); is && operation.Op == "dial" {
		return true
	}
	if _, is := errors.AsType[*net.DNSError](err); is {
		return true
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return true
	}
	_, refused := errors.AsType[tls.AlertError](err)
	return refused || errors.Is(err, http.ErrSchemeMismatch)
}
