package httpserver

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var turnedAway = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_connections_refused_total",
	Help: "Connections that were closed at once because too many were open, in all or from one address.",
})

// Connections that are open at the same time, of one listener. Those from private addresses are a proxy's and only count
// among all.
const (
	maxConnections      = 10_000
	maxPerPublicAddress = 512 // of IPv6: of one /64
)

// unsentBytes bounds what the kernel takes of an answer before the peer reads: else it would keep megabytes for each
// connection that is never read, and a write to it would look done.
const unsentBytes = 64 << 10

// Listen takes a TCP address for a server that strangers reach, or the path of a socket after "unix:". Beyond a number of open connections, in
// all and from one public address, new ones are closed.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if path, is := strings.CutPrefix(address, socketPrefix); is {
		listener, err := listenSocket(ctx, path)
		if err != nil {
			return nil, err
		}
		return newGate(listener), nil
	}
	listener, err := (&net.ListenConfig{Control: limitUnsent}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newGate(listener), nil
}

const (
	socketPrefix = "unix:"
	socketMode   = 0o660 // for the proxy, which is in the group of the socket
)

// listenSocket takes the path of a socket. One that a process left behind which died is replaced; any other file is not.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		listener, err = (&net.ListenConfig{}).Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// abandoned reports whether a path is a socket on which no process listens.
func abandoned(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = connection.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Inherit makes of a listener that another program has opened what Listen returns.
func Inherit(listener net.Listener) net.Listener {
	if tcp, is := listener.(*net.TCPListener); is {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = limitUnsent("", "", raw) // best effort, as below
		}
	}
	return newGate(listener)
}

// gate counts the open connections of a listener.
type gate struct {
	net.Listener
	mu     sync.Mutex
	all    int
	from   map[netip.Prefix]int
	most   int
	others int // most from one public address
}

func newGate(listener net.Listener) *gate {
	return &gate{Listener: listener, from: map[netip.Prefix]int{}, most: maxConnections, others: maxPerPublicAddress}
}

// Accept waits for the next connection that may stay.
func (g *gate) Accept() (net.Conn, error) {
	for {
		connection, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}

		source := sourceOf(connection)
		if !g.enter(source) {
			turnedAway.Inc()
			_ = connection.Close()
			continue
		}

		leave := sync.OnceFunc(func() { g.leave(source) })
		if tcp, is := connection.(*net.TCPConn); is {
			return &countedTCP{tcp, leave}, nil
		}

		return &counted{connection, leave}, nil
	}
}

func sourceOf(connection net.Conn) netip.Prefix { return sourceOfAddress(connection.RemoteAddr()) }

// sourceOfAddress is the network of a public address; the zero prefix for others.
func sourceOfAddress(end net.Addr) netip.Prefix {
	remote, err := netip.ParseAddrPort(end.String())
	if err != nil {
		return netip.Prefix{}
	}

	address := remote.Addr().Unmap().WithZone("")
	if address.IsPrivate() || !address.IsGlobalUnicast() {
		return netip.Prefix{}
	}

	bits := 32
	if address.Is6() {
		bits = 64
	}

	network, err := address.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}

	return network
}

func (g *gate) enter(source netip.Prefix) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.all >= g.most || source.IsValid() && g.from[source] >= g.others {
		return false
	}

	g.all++
	if source.IsValid() {
		g.from[source]++
	}
	return true
}

func (g *gate) leave(source netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if !source.IsValid() {
		return
	}
	if g.from[source]--; g.from[source] == 0 {
		delete(g.from, source)
	}
}

// countedTCP keeps what net/http does with TCP connections, such as sending files.
type countedTCP struct {
	*net.TCPConn
	leave func()
}

// Close makes room for another connection.
func (c *countedTCP) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

type counted struct {
	net.Conn
	leave func()
}

// Close makes room for another connection.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
