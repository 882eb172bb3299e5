package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TraceparentHeader carries the trace of a request (W3C Trace Context, section 3.2).
const TraceparentHeader = "Traceparent"

// Kinds of spans, by their place between two programs.
const (
	KindInternal = trace.SpanKindInternal
	KindServer   = trace.SpanKindServer
	KindClient   = trace.SpanKindClient
	KindProducer = trace.SpanKindProducer
)

// Standard names by which an environment turns traces on; the exporter reads its other OTEL_EXPORTER_OTLP_ names by itself.
const (
	endpointName      = "OTEL_EXPORTER_OTLP_ENDPOINT"
	traceEndpointName = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	disabledName      = "OTEL_SDK_DISABLED"
	tracesPath        = "/v1/traces"
)

// TraceEndpoint returns where traces are sent: configured, else what the environment says by its standard names, else nothing. An
// address without a path gets /v1/traces (OpenTelemetry Protocol Exporter, "Endpoint URLs for OTLP/HTTP").
func TraceEndpoint(configured string) string {
	if strings.EqualFold(os.Getenv(disabledName), "true") {
		return ""
	}

	switch {
	case configured != "":
	case os.Getenv(traceEndpointName) != "":
		return os.Getenv(traceEndpointName) // as it is
	case os.Getenv(endpointName) != "":
		configured = os.Getenv(endpointName)
	default:
		return ""
	}
	if base := strings.TrimSuffix(configured, "/"); !strings.HasSuffix(base, tracesPath) {
		return base + tracesPath
	}
	return configured
}

// TraceOptions configure a Tracer. Endpoint and Client are required.
type TraceOptions struct {
	Endpoint string  // whole address of an OTLP/HTTP receiver
	Sample   float64 // share of the messages that are traced, 0…1, where no trusted caller decided
	Service  string  // service.name; OTEL_SERVICE_NAME wins
	Version  string
	Instance string // service.instance.id
	Client   *http.Client
	Logger   *slog.Logger
}

// Tracer makes spans and sends them. A nil one makes none, at the price of a comparison.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// complainEvery is how often the log is told that traces cannot be sent.
const complainEvery = time.Minute

// NewTracer makes a tracer. Spans wait in memory for a few seconds, at most 2048 of them; what is over that, and what the receiver does not
// take, is lost: messages never wait for it.
func NewTracer(ctx context.Context, options TraceOptions) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(options.Endpoint), otlptracehttp.WithHTTPClient(options.Client))
	if err != nil {
		return nil, fmt.Errorf("telemetry.otlp_endpoint %s: %w", options.Endpoint, err)
	}

	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", options.Service), attribute.String("service.version", options.Version),
		attribute.String("service.instance.id", options.Instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}

	var complained atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now, last := time.Now().UnixNano(), complained.Load()
		if now-last > int64(complainEvery) && complained.CompareAndSwap(last, now) {
			options.Logger.Warn("traces cannot be sent", "error", err)
		}
	}))

	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(about), sdktrace.WithSampler(sampler(options.Sample)))
	return &Tracer{provider: provider, tracer: provider.Tracer(scope)}, nil
}

// scope names who makes the spans.
const scope = "inbox"

// Close sends what waits, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// sampler decides about the first span of a message here: by the share, unless a caller that is trusted, or this server before, decided. The
// trace id has no say, because strangers choose theirs.
type sampler float64

// ShouldSample implements the sampler of the SDK.
func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	before := trace.SpanContextFromContext(p.ParentContext)
	sampled := before.IsSampled()
	if !before.IsValid() || before.IsRemote() && p.ParentContext.Value(undecidedKey{}) != nil {
		sampled = rand.Float64() < float64(s)
	}

	decision := sdktrace.Drop
	if sampled {
		decision = sdktrace.RecordAndSample
	}
	return sdktrace.SamplingResult{Decision: decision, Tracestate: before.TraceState()}
}

// Description implements the sampler of the SDK.
func (s sampler) Description() string { return fmt.Sprintf("inbox{%g}", float64(s)) }

// Attribute is one attribute of a span, under its name of OpenTelemetry's semantic conventions.
func Attribute(name string, value any) slog.Attr { return slog.Any(name, value) }

// Span is one piece of work. A nil one is not recorded.
type Span struct{ span trace.Span }

// Start begins a span below what ctx knows: a span of this process, or the caller named by WithTraceparent. End ends it.
func (t *Tracer) Start(ctx context.Context, name string, kind trace.SpanKind, attributes ...slog.Attr) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind)) //nolint:spancheck // Span.End of the caller ends it
	return ctx, wrap(span, attributes)                               //nolint:spancheck // likewise
}

// StartBelow begins a span below one of this process; without one that is recorded it does nothing.
func StartBelow(ctx context.Context, name string, kind trace.SpanKind, attributes ...slog.Attr) (context.Context, *Span) {
	above := trace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return ctx, nil
	}
	ctx, span := above.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind)) //nolint:spancheck // likewise
	return ctx, wrap(span, attributes)                                                           //nolint:spancheck // likewise
}

func wrap(span trace.Span, attributes []slog.Attr) *Span {
	made := &Span{span}
	made.Set(attributes...)
	return made
}

// Set adds attributes. Texts, whole numbers and flags keep their type.
func (s *Span) Set(attributes ...slog.Attr) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	for _, one := range attributes {
		switch one.Value.Kind() {
		case slog.KindInt64:
			s.span.SetAttributes(attribute.Int64(one.Key, one.Value.Int64()))
		case slog.KindBool:
			s.span.SetAttributes(attribute.Bool(one.Key, one.Value.Bool()))
		default:
			s.span.SetAttributes(attribute.String(one.Key, one.Value.String()))
		}
	}
}

// End ends the span. Failed is why its work failed, in words that hold nothing of a message; empty = it did not.
func (s *Span) End(failed string) {
	if s == nil {
		return
	}
	if failed != "" {
		s.span.SetStatus(codes.Error, failed)
	}
	s.span.End()
}

type undecidedKey struct{}

var propagator propagation.TraceContext

// WithTraceparent returns a context in which spans begin below the caller that the header names. Decided says that the caller, or this
// server before, decided whether the trace is recorded; otherwise only its id is taken. A header that is none is ignored.
func WithTraceparent(ctx context.Context, header string, decided bool) context.Context {
	if len(header) != traceparentBytes {
		return ctx
	}
	with := propagator.Extract(ctx, propagation.MapCarrier{"traceparent": header})
	if !decided {
		with = context.WithValue(with, undecidedKey{}, true)
	}
	return with
}

// traceparentBytes is the length of a header of version 00 (W3C Trace Context, section 3.2.2).
const traceparentBytes = 55

// Traceparent returns the header that names the span of ctx; empty without one.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagator.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Inject tells the receiver of a request the span of ctx. Who is told is a choice of the caller: traces are for programs of
// operators, not for every server that a message touches.
func Inject(ctx context.Context, header http.Header) {
	if parent := Traceparent(ctx); parent != "" {
		header.Set(TraceparentHeader, parent)
	}
}
