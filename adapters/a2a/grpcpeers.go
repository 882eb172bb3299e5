package a2a

import (
	"context"
	"net"
	"net/netip"
	"sync"

	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"inbox/internal/fault"
)

// maxDropped is how many readers of one connection may be dropped before it is closed. gRPC cannot reset one stream from
// here: what a dropped reader has not read stays in memory until its connection ends.
const maxDropped = 16

// grpcPeers knows the open connections of a listener by the address of their other end.
type grpcPeers struct {
	net.Listener
	mu   sync.Mutex
	open map[string]*grpcPeer
}

// grpcPeer is one connection.
type grpcPeer struct {
	net.Conn
	peers   *grpcPeers
	dropped int // guarded by grpcPeers.mu
}

func newGRPCPeers(listener net.Listener) *grpcPeers {
	return &grpcPeers{Listener: listener, open: map[string]*grpcPeer{}}
}

// Accept waits for the next connection.
func (p *grpcPeers) Accept() (net.Conn, error) {
	connection, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted := &grpcPeer{Conn: connection, peers: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[connection.RemoteAddr().String()] = accepted
	return accepted, nil
}

// Close forgets the connection.
func (c *grpcPeer) Close() error {
	c.peers.mu.Lock()
	if name := c.RemoteAddr().String(); c.peers.open[name] == c {
		delete(c.peers.open, name)
	}
	c.peers.mu.Unlock()
	return c.Conn.Close()
}

// pace refuses a request of an address that asks too often, before anything of it is read.
func (g *GRPC) pace(ctx context.Context, info *tap.Info) (context.Context, error) {
	if wait := g.adapter.options.GRPCPace(g.clientOf(ctx, info.Header.Get("x-forwarded-for"))); wait > 0 {
		return nil, problemOf(&fault.Fault{Kind: fault.RateLimited, Public: "too many requests from your address", RetryAfter: wait}).grpcStatus(false)
	}
	return ctx, nil
}

// clientOf is the address behind the connection of a call; forwarded is what a proxy in front says.
func (g *GRPC) clientOf(ctx context.Context, forwarded []string) netip.Addr {
	caller, known := grpcpeer.FromContext(ctx)
	if !known || g.adapter.options.GRPCClient == nil {
		return netip.Addr{}
	}
	return g.adapter.options.GRPCClient(caller.Addr.String(), forwarded)
}

// drop counts a reader that was dropped against the connection of its call.
func (p *grpcPeers) drop(ctx context.Context) {
	caller, known := grpcpeer.FromContext(ctx)
	if !known {
		return
	}
	p.mu.Lock()
	connection := p.open[caller.Addr.String()]
	over := false
	if connection != nil {
		connection.dropped++
		over = connection.dropped >= maxDropped
	}
	p.mu.Unlock()
	if over {
		_ = connection.Close()
	}
}
