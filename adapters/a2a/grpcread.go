package a2a

import (
	"context"
	"net/http"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/grpc"

	"inbox/exchange"
	"inbox/internal/admission"
	"inbox/internal/bearer"
	"inbox/internal/fault"
)

// A request by gRPC is one message that the library reads whole, up to the largest that any caller may send: how large it is and
// which agent it is for, nothing says before. So few are read at once, fewer of callers that have not proven who they are, and what
// was read counts for its caller as the body of a request by HTTP does.

// Bounds of requests that are being read.
const (
	readLimit    = time.Minute      // of one request
	readPatience = 10 * time.Second // of a caller that waits for its turn
	readWaiting  = 4096             // callers that wait
	mostReaders  = 64
)

// readers bound the requests that are read at once. Those of tokens that the operator made are known before anything is read, and have
// three quarters of the places; everything else about a caller is found out afterwards.
type readers struct{ known, other *admission.Semaphore }

// newReaders makes places for as many of the largest requests as fit into the budget.
func newReaders(fit int64) readers {
	places := int(max(2, min(fit, mostReaders)))
	of := func(total int) *admission.Semaphore {
		return admission.NewSemaphore(admission.SemaphoreOptions{
			Total: total, PerSource: (total + 1) / 2, PerHost: total, PerPair: (total + 1) / 2, Patience: readPatience, Waiting: readWaiting,
		})
	}
	return readers{known: of(places - max(1, places/4)), other: of(max(1, places/4))}
}

// receive reads the request when it is its turn.
func (s *grpcStream) receive(request any) error {
	header := headersOf(s.ctx)
	s.source = admission.SourceOf(s.server.clientOf(s.ctx, header.Values("X-Forwarded-For")))
	places := s.server.reading.other
	if s.server.adapter.known(s.ctx, header) {
		places = s.server.reading.known
	}

	leave, err := places.Enter(s.ctx, s.source, "")
	if err != nil {
		return s.refuse(tooBusyToRead(err))
	}

	received := make(chan error, 1)
	go func() { // the end of the handler ends it
		defer leave()
		received <- s.ServerStream.RecvMsg(request)
	}()

	limit := time.NewTimer(readLimit)
	defer limit.Stop()
	select {
	case err := <-received:
		return err
	case <-limit.C:
		return s.refuse(newProblem(a2a.ErrInvalidRequest, "the request did not arrive in time"))
	}
}

func (s *grpcStream) refuse(p *problem) error {
	s.call.problem.Store(p)
	return p
}

// bounded counts a request that was read until the call is over, and refuses one that its caller may not send.
func (s *grpcStream) bounded(size int64) *problem {
	if limit := s.server.adapter.maxRequest(s.call); size > limit {
		return tooLarge(limit)
	}
	if !s.server.adapter.options.Bodies.Take(s.source, true, size) {
		return tooBusyToRead(nil)
	}
	s.taken = size
	return nil
}

func tooBusyToRead(cause error) *problem {
	return problemOf(&fault.Fault{
		Kind: fault.Unavailable, Public: "too many requests are being read at the same time: try again later", RetryAfter: 2 * time.Second, Cause: cause,
	})
}

// known reports whether a token is one that the operator made for callers.
func (v *authenticator) known(ctx context.Context, header http.Header) bool {
	_, shown := authorization(&http.Request{Header: header})
	if !bearer.WellFormed(shown) {
		return false
	}
	token, found, err := v.tokens.Find(ctx, shown)
	return err == nil && found && token.Valid(time.Now()) && token.Scope == exchange.TokenPeer
}

// admittedFirst registers all methods of a service as streams, which are the same on the wire: those are handed to their handlers before
// the request is read.
type admittedFirst struct{ server *grpc.Server }

// RegisterService registers a service and its methods.
func (r admittedFirst) RegisterService(service *grpc.ServiceDesc, implementation any) {
	streams := *service
	streams.Methods = nil
	streams.Streams = append([]grpc.StreamDesc(nil), service.Streams...)
	for _, method := range service.Methods {
		streams.Streams = append(streams.Streams, grpc.StreamDesc{StreamName: method.MethodName, Handler: answeredOnce(method)})
	}
	r.server.RegisterService(&streams, implementation)
}

// answeredOnce is a method that has one answer as the handler of a stream.
func answeredOnce(method grpc.MethodDesc) grpc.StreamHandler {
	return func(service any, stream grpc.ServerStream) error {
		within := func(_ context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return next(stream.Context(), request) // as it is since the request was admitted
		}
		answer, err := method.Handler(service, stream.Context(), stream.RecvMsg, within)
		if err != nil {
			return err
		}
		return stream.(*grpcStream).answer(answer) //nolint:forcetypeassert // it is what the interceptor hands on
	}
}

// answer sends the only answer of a call. A reader may take its time for it, as the whole of it is in memory once.
func (s *grpcStream) answer(answer any) error {
	s.call.fitGRPC(answer)
	return s.ServerStream.SendMsg(answer)
}
