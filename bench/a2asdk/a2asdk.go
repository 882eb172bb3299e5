// Package a2asdk is the server that the Go SDK of A2A makes by itself: its own request handler, which keeps tasks in
// memory, with an agent that echoes. The benchmarks measure ours beside it. It is no example: it asks for no token and
// forgets everything with the process.
package a2asdk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// echo answers in the final status: the SDK copies the whole task for each event, so that this is the cheapest way to an
// answer with a task.
type echo struct{}

func (echo) Execute(_ context.Context, asked *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		answer := a2a.NewMessage(a2a.MessageRoleAgent, asked.Message.Parts...)
		if yield(a2a.NewSubmittedTask(asked, asked.Message), nil) {
			yield(a2a.NewStatusUpdateEvent(asked, a2a.TaskStateCompleted, answer), nil)
		}
	}
}

func (echo) Cancel(_ context.Context, asked *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(asked, a2a.TaskStateCanceled, nil), nil)
	}
}

// Serve answers JSON-RPC at host:port until ctx ends.
func Serve(ctx context.Context, address string) error {
	handler := a2asrv.NewHandler(echo{}, a2asrv.WithLogger(slog.New(slog.DiscardHandler)))
	server := &http.Server{Addr: address, Handler: a2asrv.NewJSONRPCHandler(handler), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the A2A SDK: %w", err)
	}
	return nil
}
