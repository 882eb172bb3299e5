package mcptool

import (
	"log/slog"
	"net/http"
	"testing"

	"inbox/internal/await"
	"inbox/internal/telemetry"
	"inbox/internal/telemetry/telemetrytest"
)

// TestCallsHaveSpans: a call of a tool, of a program beside as over HTTP, is a span below that of the run, with the tool's name and how it ended,
// and without the words of the call. A name that a model made up is not told.
func TestCallsHaveSpans(t *testing.T) {
	eachWay(t, func(t *testing.T, options Options, server Server) {
		receiver := telemetrytest.Start(t)
		tracer, err := telemetry.NewTracer(t.Context(), telemetry.TraceOptions{
			Endpoint: receiver.URL + "/v1/traces", Sample: 1, Service: "test", Client: http.DefaultClient, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		source := start(t, options, server)
		names(t, source)

		ctx, run := tracer.Start(t.Context(), "run", telemetry.KindInternal)
		for _, name := range []string{"peer/echo", "peer/made-up-by-a-model"} {
			if _, err := source.Call(ctx, name, map[string]any{"text": "a secret"}, ""); err != nil {
				t.Fatal(err)
			}
		}
		run.End("")
		if err := tracer.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		var above telemetrytest.Span
		var tools []telemetrytest.Span
		await.Until(t, "all spans are there", func() bool {
			tools = nil
			for _, span := range receiver.Spans() {
				switch span.Name {
				case "run":
					above = span
				case "tool":
					tools = append(tools, span)
				}
			}
			return above.ID != "" && len(tools) == 2
		})
		for i, want := range []string{"peer/echo", ""} {
			span := tools[i]
			if span.Parent != above.ID || span.Attributes["gen_ai.tool.name"] != want || span.Attributes["inbox.tool_server"] != "peer" || span.Failed != (want == "") || len(span.Attributes) != 1+min(len(want), 1) {
				t.Errorf("the span of %q is %+v below %s", want, span, above.ID)
			}
		}
	})
}
