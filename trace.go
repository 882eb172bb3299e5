package inbox

import (
	"context"
	"net/http"
	"time"

	"inbox/internal/safehttp"
	"inbox/internal/telemetry"
)

// flushTime is how long the end of the server waits for a receiver of traces.
const flushTime = 5 * time.Second

// openTracer begins to trace where the operator says so.
func (r *resources) openTracer(ctx context.Context) error {
	endpoint := telemetry.TraceEndpoint(r.config.Telemetry.OTLPEndpoint)
	if endpoint == "" {
		return nil
	}

	_, client, err := r.trustingOperator(endpoint)
	if err != nil {
		return err
	}
	r.tracer, err = telemetry.NewTracer(ctx, telemetry.TraceOptions{
		Endpoint: endpoint, Sample: r.config.Telemetry.Sample, Service: r.config.Telemetry.Service, Version: Version,
		Instance: r.config.PublicURL, Client: &http.Client{Transport: transport{client}}, Logger: r.logger,
	})
	return err
}

// closeTracer sends what waits.
func (r *resources) closeTracer() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := r.tracer.Close(ctx); err != nil {
		r.logger.Warn("the last traces were not sent", "error", err)
	}
}

// transport lets a library send by our client.
type transport struct{ client *safehttp.Client }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	return t.client.Do(request)
}
