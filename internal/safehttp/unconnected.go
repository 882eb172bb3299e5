package safehttp

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// unconnected is the error of an exchange that had no connection.
type unconnected struct{ error }

func (u unconnected) Unwrap() error { return u.error }

// Unconnected reports whether an exchange, or a dial, failed before there was a connection that could carry a request: its name, the dial
// or TLS failed. Nothing in the request can have caused it.
func Unconnected(err error) bool {
	if _, is := errors.AsType[unconnected](err); is {
		return true
	}
	if operation, is := errors.AsType[*net.OpError](err); is && operation.Op == "dial" {
		return true
	}
	_, is := errors.AsType[*net.DNSError](err)
	return is
}

// connection knows whether an exchange waits for one. The transport asks for another one only if nothing of the request was sent over the
// last. A request that cannot be sent at all asks for none.
type connection struct{ wanted atomic.Bool }

func (c *connection) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.wanted.Store(false) },
	})
}

// explain marks the error of an exchange that had no connection.
func (c *connection) explain(err error) error {
	if err == nil || !c.wanted.Load() {
		return err
	}
	return unconnected{err}
}
