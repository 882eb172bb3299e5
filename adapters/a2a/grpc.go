package a2a

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	pb0 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/v2/a2a"
	grpc0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpc1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	pb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"inbox/internal/admission"
	"inbox/internal/fault"
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
	reading  readers

	stop     sync.Once
	stopping chan struct{}
}

// NewGRPC makes the server of an address, host:port; security nil = plain text, for a proxy in front. Grace is how long
// calls under way may take when it stops.
func (a *Adapter) NewGRPC(address string, security *tls.Config, grace time.Duration) *GRPC {
	if grace <= 0 {
		grace = defaultStopTime
	}

	g := &GRPC{
		adapter: a, address: address, grace: grace, stopping: make(chan struct{}), reading: newReaders(a.options.Bodies.Limit() / a.options.MaxRequestBytes),
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newBoundedCodec()), grpc.StreamInterceptor(g.stream), grpc.MaxRecvMsgSize(int(a.options.MaxRequestBytes)),
		grpc.MaxConcurrentStreams(maxGRPCStreams), grpc.MaxHeaderListSize(maxGRPCHeaders), grpc.ConnectionTimeout(handshakeLimit),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepAliveTime, Timeout: keepAliveLimit}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPings, PermitWithoutStream: true}),
	}
	if a.options.GRPCPace != nil {
		options = append(options, grpc.InTapHandle(g.limitRate))
	}
	if security != nil {
		options = append(options, grpc.Creds(grpccredentials.NewTLS(security)))
	}

	g.server = grpc.NewServer(options...)
	handler := &handler{Adapter: a}
	pb1.RegisterA2AServiceServer(admittedFirst{g.server}, grpc1.NewHandler(grpcHandler{handler}))
	pb0.RegisterA2AServiceServer(admittedFirst{g.server}, grpc0.NewHandler(handler))
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

// Use takes a listener that another program has opened, in the place of Listen.
func (g *GRPC) Use(listener net.Listener) { g.listener = newGRPCPeers(httpserver.Inherit(listener)) }

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

// limitRate refuses a request of an address that asks too often, before anything of it is read.
func (g *GRPC) limitRate(ctx context.Context, info *tap.Info) (context.Context, error) {
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

func (g *GRPC) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	_, shown := authorization(&http.Request{Header: headersOf(stream.Context())})
	ctx, release := g.adapter.tokens.Hold(stream.Context(), shown)
	defer release()
	s := &grpcStream{ServerStream: stream, server: g, method: info.FullMethod, call: &call{stopping: g.stopping, limit: g.adapter.options.MaxRequestBytes}, ctx: ctx}
	defer func() { g.adapter.options.Bodies.Give(s.source, s.taken) }()
	defer s.call.left()
	defer func() { err = g.finish(ctx, s.call, recover(), err) }()
	return next(service, s)
}

// grpcStream admits the caller with the first request, which is all that the client sends, and drops a reader that
// takes none of an event for too long: the run must not wait for it.
type grpcStream struct {
	grpc.ServerStream
	server *GRPC
	method string
	call   *call
	ctx    context.Context //nolint:containedctx // it is what Context returns

	source admission.Source // whom the bytes of the request count for
	taken  int64
}

func (s *grpcStream) Context() context.Context { return s.ctx }

func (s *grpcStream) RecvMsg(request any) error {
	if err := s.receive(request); err != nil {
		return err
	}

	inner, p := s.server.admit(s.ctx, s.call, s.method, request)
	if message, is := request.(proto.Message); is && p == nil {
		p = s.bounded(int64(proto.Size(message)))
	}
	if p != nil {
		s.call.problem.Store(p)
		return p
	}

	s.ctx = inner
	return nil
}

// oldService is the service of 0.3; its requests know no tenant.
const oldService = "/a2a.v1."

// admit does what the HTTP edge does: version, agent, caller, extensions, the original.
func (g *GRPC) admit(ctx context.Context, c *call, method string, request any) (context.Context, *problem) {
	header := headersOf(ctx)
	c.old = strings.HasPrefix(method, oldService)

	if p := grpcVersion(header, method); p != nil {
		return ctx, p
	}
	if p := codecProblem(request); p != nil {
		return ctx, p
	}

	c.address = g.scheme() + "://" + g.adapter.options.GRPCAddress() + method
	if p := g.adapter.identify(g.request(ctx, header, method), g.agentName(request), c); p != nil {
		return ctx, p
	}
	if p := checkGRPC(request); p != nil {
		return ctx, p
	}

	active := http.Header{}
	c.noteExtensions(header)
	c.echoExtensions(header, active)

	for name, values := range active {
		_ = grpc.SetHeader(ctx, metadata.MD{strings.ToLower(name): values}) // fails only after the headers went out
	}

	if message, is := request.(proto.Message); is && strings.HasSuffix(method, "Message") {
		original, err := protojson.Marshal(message)
		if err != nil {
			return ctx, newProblem(a2a.ErrInvalidParams, "the request cannot be read")
		}
		c.original = original
	}

	c.plainFiles = c.old && plainFiles(header)
	encodeFiles(request, c.plainFiles)
	return c.within(ctx), nil
}

func grpcVersion(header http.Header, method string) *problem {
	served := version1
	if strings.HasPrefix(method, oldService) {
		served = version03
	}
	if asked := requested(&http.Request{Header: header, URL: &url.URL{}}); asked != "" && asked != served {
		return unsupportedVersion(served)
	}
	return nil
}

// headersOf returns metadata in the form of HTTP headers, so that there is one way to authenticate.
func headersOf(ctx context.Context) http.Header {
	header := http.Header{}
	received, _ := metadata.FromIncomingContext(ctx)
	for name, values := range received {
		for _, value := range values {
			header.Add(name, value)
		}
	}
	return header
}

// scheme is that of the public address: a proxy or a listener of its own, callers see both alike.
func (g *GRPC) scheme() string {
	scheme, _, _ := strings.Cut(g.adapter.base, ":")
	return scheme
}

// request is the call as an HTTP request: gRPC is one, by POST to the method's path.
func (g *GRPC) request(ctx context.Context, header http.Header, method string) *http.Request {
	address := &url.URL{Scheme: "https", Host: g.adapter.options.GRPCAddress(), Path: method}
	request := &http.Request{Method: http.MethodPost, URL: address, Host: address.Host, Header: header}
	if client := g.clientOf(ctx, header.Values("X-Forwarded-For")); client.IsValid() {
		request.RemoteAddr = netip.AddrPortFrom(client, 0).String()
	}
	return request.WithContext(ctx)
}

// agentName is the tenant of the request, or the default agent.
func (g *GRPC) agentName(request any) string {
	if named, is := request.(interface{ GetTenant() string }); is && named.GetTenant() != "" {
		return named.GetTenant()
	}
	agent, _ := g.adapter.defaultAgent()
	return agent.Name
}

func (s *grpcStream) SendMsg(event any) error {
	if err := context.Cause(s.ctx); fault.Is(err, fault.Unauthenticated) {
		return err
	}
	s.call.fitGRPC(event)
	sent := make(chan error, 1)
	go func() { sent <- s.ServerStream.SendMsg(event) }() // the end of the handler ends it
	timer := time.NewTimer(s.server.adapter.options.WriteTimeout)
	defer timer.Stop()
	select {
	case err := <-sent:
		return err
	case <-timer.C:
		s.server.listener.drop(s.ctx)
		p := newProblem(a2a.ErrInternalError, "the stream was not read")
		s.call.problem.Store(p)
		return p
	}
}

// fitGRPC corrects what the SDK makes of an answer: the files for clients of 0.3 that read the type as it says, and fields of
// a card that are set to nothing, which would belong to what is signed (A2A 1.0, section 8.4.1).
func (c *call) fitGRPC(answer any) {
	if c.plainFiles {
		decodeFiles(answer)
	}
	if message, is := answer.(proto.Message); is && !c.old && message.ProtoReflect().IsValid() {
		unwrapData(message.ProtoReflect())
	}

	card, is := answer.(*pb1.AgentCard)
	if !is || card == nil {
		return
	}

	if card.GetDocumentationUrl() == "" {
		card.DocumentationUrl = nil
	}
	if card.GetIconUrl() == "" {
		card.IconUrl = nil
	}
}

// finish makes the status of a call that is over. The SDK's own texts never leave.
func (g *GRPC) finish(ctx context.Context, c *call, panicked any, err error) error {
	switch {
	case panicked != nil:
		c.problem.Store(defect(panicked))
	case fault.Is(context.Cause(ctx), fault.Unauthenticated): // its token was revoked meanwhile
		c.problem.Store(problemOf(context.Cause(ctx)))
	case err != nil && c.problem.Load() == nil:
		c.problem.Store(grpcProblem(ctx, c, err))
	}

	g.adapter.count(ctx, c)
	if p := c.problem.Load(); p != nil {
		if len(p.authenticate) > 0 {
			_ = grpc.SetTrailer(ctx, metadata.MD{"www-authenticate": p.authenticate}) // fails only outside of a call
		}
		return p.grpcStatus(c.old)
	}

	return nil
}

// grpcProblem reads why the SDK ended a call without a problem of ours: before the handler the request was at fault,
// after it the client left or the answer could not be written.
func grpcProblem(ctx context.Context, c *call, err error) *problem {
	switch {
	case ctx.Err() != nil:
		return problemOf(ctx.Err())
	case c.operation() != "":
		return &problem{sentinel: a2a.ErrInternalError, message: "internal error", cause: err}
	case status.Code(err) == grpccodes.Unimplemented:
		return newProblem(a2a.ErrMethodNotFound, "no such method")
	case status.Code(err) == grpccodes.ResourceExhausted:
		return tooLarge(c.limit)
	}
	return newProblem(a2a.ErrInvalidParams, "the request does not fit the method")
}

var unimplementedIn03 = []error{a2a.ErrUnsupportedOperation, a2a.ErrPushNotificationNotSupported, a2a.ErrVersionNotSupported}

// grpcStatus writes a problem with its typed details (A2A 1.0, section 5.4). Clients of 0.3 know no details: the SDK in Python
// reads the name of the error before the text, the one in JavaScript the codes of that version.
func (p *problem) grpcStatus(old bool) error {
	var code grpccodes.Code
	if code.UnmarshalJSON([]byte(`"`+statusName(p)+`"`)) != nil {
		code = grpccodes.Internal
	}

	text := p.Error()
	if old {
		text = errorName(p) + ": " + text
		if slices.Contains(unimplementedIn03, p.sentinel) {
			code = grpccodes.Unimplemented
		}
	}

	reason := a2a.ErrorReason(p.sentinel)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: a2a.ProtocolDomain, Metadata: explained(reason)}}
	if p.field != "" {
		details = append(details, &errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: p.field, Description: p.message}},
		})
	}
	if p.retryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.retryAfter)})
	}

	plain := status.New(code, text)
	if full, err := plain.WithDetails(details...); err == nil {
		return full.Err()
	}

	return plain.Err()
}

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
