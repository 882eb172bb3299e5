package a2a

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	pb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// oldService is the service of 0.3; its requests know no tenant.
const oldService = "/a2a.v1."

func (g *GRPC) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	c := &call{stopping: g.stopping}
	defer c.left()
	defer func() { err = g.finish(ctx, c, recover(), err) }()
	inner, p := g.admit(ctx, c, info.FullMethod, request)
	if p != nil {
		c.problem.Store(p)
		return nil, nil
	}
	answer, err = next(inner, request)
	c.fitGRPC(answer)
	return answer, err
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

func (g *GRPC) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	s := &grpcStream{ServerStream: stream, server: g, method: info.FullMethod, call: &call{stopping: g.stopping}, ctx: stream.Context()}
	defer s.call.left()
	defer func() { err = g.finish(stream.Context(), s.call, recover(), err) }()
	return next(service, s)
}

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
	echoExtensions(header, active)
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

// request is the call as an HTTP request: gRPC is one, by POST to the method's path.
func (g *GRPC) request(ctx context.Context, header http.Header, method string) *http.Request {
	address := &url.URL{Scheme: "https", Host: g.adapter.options.GRPCAddress(), Path: method}
	request := &http.Request{Method: http.MethodPost, URL: address, Host: address.Host, Header: header}
	if client := g.clientOf(ctx, header.Values("X-Forwarded-For")); client.IsValid() {
		request.RemoteAddr = netip.AddrPortFrom(client, 0).String()
	}
	return request.WithContext(ctx)
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

// agentName is the tenant of the request, or the default agent.
func (g *GRPC) agentName(request any) string {
	if named, is := request.(interface{ GetTenant() string }); is && named.GetTenant() != "" {
		return named.GetTenant()
	}
	agent, _ := g.adapter.defaultAgent()
	return agent.Name
}

// finish makes the status of a call that is over. The SDK's own texts never leave.
func (g *GRPC) finish(ctx context.Context, c *call, panicked any, err error) error {
	switch {
	case panicked != nil:
		c.problem.Store(defect(panicked))
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
		return tooLarge()
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
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: a2a.ErrorReason(p.sentinel), Domain: a2a.ProtocolDomain}}
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

// grpcStream admits the caller with the first request, which is all that the client sends, and drops a reader that
// takes none of an event for too long: the run must not wait for it.
type grpcStream struct {
	grpc.ServerStream
	server *GRPC
	method string
	call   *call
	ctx    context.Context //nolint:containedctx // it is what Context gives
}

func (s *grpcStream) Context() context.Context { return s.ctx }

func (s *grpcStream) RecvMsg(request any) error {
	if err := s.ServerStream.RecvMsg(request); err != nil {
		return err
	}
	inner, p := s.server.admit(s.ctx, s.call, s.method, request)
	if p != nil {
		s.call.problem.Store(p)
		return p
	}
	s.ctx = inner
	return nil
}

func (s *grpcStream) SendMsg(event any) error {
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

// scheme is that of the public address: a proxy or a listener of its own, callers see both alike.
func (g *GRPC) scheme() string {
	scheme, _, _ := strings.Cut(g.adapter.base, ":")
	return scheme
}
