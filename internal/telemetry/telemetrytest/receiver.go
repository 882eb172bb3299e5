// Package telemetrytest receives traces for tests: OTLP over HTTP in protobuf. It is for tests only.
package telemetrytest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that arrived. Ids are in hex; Parent is empty for the first one of a trace.
type Span struct {
	Service, Name, Trace, ID, Parent string

	Failed     bool
	Attributes map[string]string
}

// Receiver is a server that takes traces.
type Receiver struct {
	URL string // for telemetry.otlp_endpoint

	mu    sync.Mutex
	spans []Span
}

// Start runs a receiver until the test ends.
func Start(tb testing.TB) *Receiver {
	tb.Helper()
	r := &Receiver{}
	server := httptest.NewServer(r)
	tb.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// ServeHTTP takes one batch at /v1/traces.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 16<<20))
	var batch collector.ExportTraceServiceRequest
	if err != nil || request.URL.Path != "/v1/traces" || proto.Unmarshal(body, &batch) != nil {
		http.Error(w, "no batch of spans", http.StatusBadRequest)
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	for _, from := range batch.GetResourceSpans() {
		service := texts(from.GetResource().GetAttributes())["service.name"]
		for _, scope := range from.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.spans = append(r.spans, Span{
					Service: service, Name: span.GetName(), Trace: hex.EncodeToString(span.GetTraceId()),
					ID: hex.EncodeToString(span.GetSpanId()), Parent: hex.EncodeToString(span.GetParentSpanId()),
					Failed: span.GetStatus().GetCode() == 2, Attributes: texts(span.GetAttributes()),
				})
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Spans returns what arrived so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

func texts(attributes []*common.KeyValue) map[string]string {
	named := map[string]string{}
	for _, one := range attributes {
		named[one.GetKey()] = one.GetValue().GetStringValue()
	}
	return named
}
