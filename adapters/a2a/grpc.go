package a2a

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	grpc0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpc1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"inbox/internal/httpserver"
)

// Bounds of a gRPC connection. A client that is gone is noticed within keepAliveTime and keepAliveLimit.
const (
	maxGRPCStreams  = 128
	maxGRPCHeaders  = 32 << 10
	handshakeLimit  = 10 * time.Second
	keepAliveTime   = 30 * time.Second
	keepAliveLimit  = 10 * time.Second
	minClientPings  = 10 * time.Second
	defaultStopTime = 10 * time.Second
)

// GRPC serves the agents by gRPC on a listener of its own: lf.a2a.v1.A2AService for 1.0 and a2a.v1.A2AService for 0.3.
// The tenant of a request names the agent, as the card says; without one it is the default agent. It is safe for
// concurrent use.
type GRPC struct {
	adapter  *Adapter
	address  string
	grace    time.Duration
	server   *grpc.Server
	listener *grpcPeers

	stop     sync.Once
	stopping chan struct{}
}

// NewGRPC makes the server of an address, host:port; security nil = plain text, for a proxy in front. Grace is how long
// calls under way may take when it stops.
func (a *Adapter) NewGRPC(address string, security *tls.Config, grace time.Duration) *GRPC {
	if grace <= 0 {
		grace = defaultStopTime
	}
	g := &GRPC{adapter: a, address: address, grace: grace, stopping: make(chan struct{})}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newBoundedCodec()), grpc.UnaryInterceptor(g.unary), grpc.StreamInterceptor(g.stream), grpc.MaxRecvMsgSize(maxBodyBytes),
		grpc.MaxConcurrentStreams(maxGRPCStreams), grpc.MaxHeaderListSize(maxGRPCHeaders), grpc.ConnectionTimeout(handshakeLimit),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepAliveTime, Timeout: keepAliveLimit}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPings, PermitWithoutStream: true}),
	}
	if a.options.GRPCPace != nil {
		options = append(options, grpc.InTapHandle(g.pace))
	}
	if security != nil {
		options = append(options, grpc.Creds(grpccredentials.NewTLS(security)))
	}
	g.server = grpc.NewServer(options...)
	handler := &handler{Adapter: a}
	grpc1.NewHandler(grpcHandler{handler}).RegisterWith(g.server)
	grpc0.NewHandler(handler).RegisterWith(g.server)
	return g
}

// Listen takes the address.
func (g *GRPC) Listen() error {
	listener, err := httpserver.Listen(context.Background(), g.address)
	if err != nil {
		return fmt.Errorf("a2a.grpc_listen: %w", err)
	}
	g.listener = newGRPCPeers(listener)
	return nil
}

// Addr is the address of the listener; nil before Listen.
func (g *GRPC) Addr() net.Addr {
	if g.listener == nil {
		return nil
	}
	return g.listener.Addr()
}

// Run serves until ctx ends; calls under way then have the grace to end.
func (g *GRPC) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- g.server.Serve(g.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve gRPC: %w", err)
	case <-ctx.Done():
	}
	g.stop.Do(func() { close(g.stopping) })
	timer := time.AfterFunc(g.grace, g.server.Stop)
	defer timer.Stop()
	g.server.GracefulStop()
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return ctx.Err()
}
