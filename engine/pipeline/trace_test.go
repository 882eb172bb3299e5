package pipeline_test

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/telemetry"
	"inbox/internal/telemetry/telemetrytest"
)

const (
	callerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan   = "00f067aa0ba902b7"
	callerHeader = "00-" + callerTrace + "-" + callerSpan + "-"
)

func tracer(t testing.TB, receiver *telemetrytest.Receiver, sample float64) *telemetry.Tracer {
	t.Helper()
	made, err := telemetry.NewTracer(t.Context(), telemetry.TraceOptions{
		Endpoint: receiver.URL + "/v1/traces", Sample: sample, Service: "inbox", Client: http.DefaultClient, Logger: slog.Default(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestTraceIsStoredWithTurnAndDelivery: the second attempt of a delivery is read from the database, and belongs to the trace all the same.
func TestTraceIsStoredWithTurnAndDelivery(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		receiver := telemetrytest.Start(t)
		tracer := tracer(t, receiver, 0)
		e := startSeen(t, url, repeats, agents.Settings{}, nil, tracer)
		e.peer.refuse = func(d exchange.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("451 come again")
			}
			return nil
		}
		in := message("m1")
		in.Trace = exchange.Trace{Parent: callerHeader + "01", Decided: true}
		receipt := e.receive(t, in)
		e.waitState(t, receipt.TurnID, "delivered")
		turn, err := e.store.Turn(t.Context(), receipt.TurnID)
		if err != nil {
			t.Fatal(err)
		}
		if err := tracer.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		byName := map[string][]telemetrytest.Span{}
		for _, span := range receiver.Spans() {
			if span.Trace != callerTrace {
				t.Errorf("another trace: %+v", span)
			}
			byName[span.Name] = append(byName[span.Name], span)
		}
		accept, run, deliver := byName["accept"], byName["run"], byName["deliver"]
		if len(accept) != 1 || len(run) != 1 || len(deliver) != 2 {
			t.Fatalf("spans %+v", byName)
		}
		if accept[0].Parent != callerSpan || run[0].Parent != accept[0].ID || deliver[0].Parent != run[0].ID || deliver[1].Parent != run[0].ID {
			t.Errorf("spans %+v", byName)
		}
		if deliver[0].Failed == deliver[1].Failed {
			t.Errorf("one attempt failed: %+v", deliver)
		}
		if want := "00-" + callerTrace + "-" + accept[0].ID + "-01"; turn.Trace != want {
			t.Errorf("the turn has %q, want %q", turn.Trace, want)
		}
	})
}

// TestStrangersDoNotDecideWhatIsRecorded: of their header only the id is taken, whatever id they choose.
func TestStrangersDoNotDecideWhatIsRecorded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		header string
		known  bool
		sample float64
		want   bool
	}{
		"known, asks":                    {callerHeader + "01", true, 0, true},
		"known, asks not":                {callerHeader + "00", true, 1, false},
		"stranger asks":                  {callerHeader + "01", false, 0, false},
		"stranger asks not":              {callerHeader + "00", false, 1, true},
		"an id that is sampled by ratio": {"00-00000000000000000000000000000001-" + callerSpan + "-01", false, 0, false},
		"no header":                      {"", true, 0, false},
		"no header, all are traced":      {"", true, 1, true},
		"no trace":                       {"00-" + strings.Repeat("0", 32) + "-" + callerSpan + "-01", true, 0, false},
		"too long":                       {callerHeader + "01" + strings.Repeat("x", 1<<10), true, 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer := tracer(t, telemetrytest.Start(t), test.sample)
			defer func() { _ = tracer.Close(t.Context()) }()
			ctx, _ := tracer.Start(telemetry.WithTraceparent(t.Context(), test.header, test.known), "accept", telemetry.KindServer)
			if got := strings.HasSuffix(telemetry.Traceparent(ctx), "-01"); got != test.want {
				t.Errorf("recorded: %v (%s)", got, telemetry.Traceparent(ctx))
			}
		})
	}
}
