package inbox

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inbox/internal/await"
)

// startServer runs a development server on free ports and stops it at the end of the test.
func startServer(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	config, err := LoadConfig("", append([]string{
		"INBOX_DATA_DIR=" + tb.TempDir(), "INBOX_HTTP_LISTEN=127.0.0.1:0", "INBOX_SMTP_LISTEN=127.0.0.1:0", "INBOX_LOG_LEVEL=error", "INBOX_PUBLIC_URL=http://localhost:8080",
	}, settings...))
	if err != nil {
		tb.Fatal(err)
	}
	return runServer(tb, config)
}

// runServer runs a server and stops it at the end of the test.
func runServer(tb testing.TB, config *Config) *Server {
	tb.Helper()
	config.ShutdownGrace = 5 * time.Second // what is under way on a busy machine ends by itself
	server, err := New(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	if err := server.Listen(); err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		if err := await.Receive(tb, ended, "the end of the server"); err != nil {
			tb.Error(err)
		}
	})
	return server
}

// BenchmarkA2AEcho is a blocking A2A send to the echo agent through every layer but the socket.
func BenchmarkA2AEcho(b *testing.B) {
	server := startServer(b)
	token, _, err := server.Operator().Tokens.Create(b.Context(), "bench", "")
	if err != nil {
		b.Fatal(err)
	}
	handler := server.http.Handler()
	var sent atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	used := processorTime()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m%d","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`, sent.Add(1))
			request := httptest.NewRequest(http.MethodPost, "/a2a/echo", strings.NewReader(body))
			request.Header.Set("Authorization", "Bearer "+token)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("A2A-Version", "1.0")
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			if recorder.Code != http.StatusOK || !strings.Contains(recorder.Body.String(), "TASK_STATE_COMPLETED") {
				b.Errorf("status %d: %s", recorder.Code, recorder.Body)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-used).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
}
