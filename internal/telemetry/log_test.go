package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(t *testing.T, write func(*slog.Logger)) map[string]any {
	t.Helper()
	var out bytes.Buffer
	logger, err := NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	write(logger)
	got := map[string]any{}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("log line %q: %v", out.String(), err)
	}
	delete(got, "time")
	delete(got, "level")
	return got
}

func TestContextAttributes(t *testing.T) {
	tests := map[string]struct {
		write func(*slog.Logger)
		want  map[string]any
	}{
		"keys and values": {
			func(l *slog.Logger) { l.InfoContext(With(context.Background(), "turn", "t1", "agent", "echo"), "ran") },
			map[string]any{"msg": "ran", "turn": "t1", "agent": "echo"},
		},
		"attributes": {
			func(l *slog.Logger) { l.InfoContext(With(context.Background(), slog.Int("attempt", 2)), "ran") },
			map[string]any{"msg": "ran", "attempt": 2.0},
		},
		"a later value wins": {
			func(l *slog.Logger) {
				ctx := With(With(context.Background(), "turn", "t1", "message", "m"), "turn", "t2")
				l.InfoContext(ctx, "ran")
			},
			map[string]any{"msg": "ran", "turn": "t2", "message": "m"},
		},
		"derived logger": {
			func(l *slog.Logger) {
				l.With("room", "queue").InfoContext(With(context.Background(), "turn", "t1"), "ran")
			},
			map[string]any{"msg": "ran", "room": "queue", "turn": "t1"},
		},
		"nothing in the context": {
			func(l *slog.Logger) { l.Info("ran", "n", 1) },
			map[string]any{"msg": "ran", "n": 1.0},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, record(t, test.write)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWithLeavesTheParentAlone(t *testing.T) {
	parent := With(context.Background(), "turn", "t1")
	With(parent, "turn", "t2", "agent", "echo")
	if got := Attributes(parent); len(got) != 1 || got[0].Value.String() != "t1" {
		t.Errorf("the parent's attributes changed: %v", got)
	}
}

func TestLevelAndFormat(t *testing.T) {
	var out bytes.Buffer
	logger, err := NewLogger(&out, "warn", "text")
	if err != nil {
		t.Fatal(err)
	}
	logger.Info("quiet")
	logger.Warn("loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "msg=loud") {
		t.Errorf("log = %q", got)
	}
	for _, bad := range [][2]string{{"loud", "text"}, {"info", "xml"}} {
		if _, err := NewLogger(&out, bad[0], bad[1]); err == nil {
			t.Errorf("level %q and format %q were taken", bad[0], bad[1])
		}
	}
}

func TestMetricsHandler(t *testing.T) {
	recorder := httptest.NewRecorder()
	MetricsHandler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	if recorder.Code != 200 || !strings.Contains(recorder.Body.String(), "go_goroutines") {
		t.Errorf("status %d, body %.200q", recorder.Code, recorder.Body.String())
	}
}
