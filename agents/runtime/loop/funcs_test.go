package loop

import (
	"context"

	"inbox/agents/runtime/envelope"
)

// SummarizerFunc makes a Summarizer of a function.
type SummarizerFunc func(ctx context.Context, head []envelope.Envelope, about map[string]any) (any, error)

// Summarize calls f.
func (f SummarizerFunc) Summarize(ctx context.Context, head []envelope.Envelope, about map[string]any) (any, error) {
	return f(ctx, head, about)
}

// ProviderAdapterFunc makes a ProviderAdapter of a function.
type ProviderAdapterFunc func(ctx context.Context, request ProviderRequest) (any, error)

// ProviderTurn calls f.
func (f ProviderAdapterFunc) ProviderTurn(ctx context.Context, request ProviderRequest) (any, error) {
	return f(ctx, request)
}

// InterruptSourceFunc makes an InterruptSource of a function.
type InterruptSourceFunc func(ctx context.Context, request Request, turn map[string]any) (any, error)

// Poll calls f.
func (f InterruptSourceFunc) Poll(ctx context.Context, request Request, turn map[string]any) (any, error) {
	return f(ctx, request, turn)
}

// RunnerFunc makes a Runner of a function.
type RunnerFunc func(ctx context.Context, messages []envelope.Envelope, turn map[string]any) (any, error)

// Turn calls f.
func (f RunnerFunc) Turn(ctx context.Context, messages []envelope.Envelope, turn map[string]any) (any, error) {
	return f(ctx, messages, turn)
}
