// Package telemetry sets up what the operator watches: the log with message, turn and request ids taken from the
// context, the metrics page with the histogram buckets that all rooms share, and traces. Metrics themselves are declared
// beside the code that moves them, spans are begun at the seams.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// NewLogger makes the server's log. Level is debug, info, warn or error; format is text or json. Records carry the
// attributes that With put into their context.
func NewLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	logger, _, err := newLogger(out, level, format)
	return logger, err
}

func newLogger(out io.Writer, level, format string) (*slog.Logger, *slog.LevelVar, error) {
	threshold := new(slog.LevelVar)
	if err := threshold.UnmarshalText([]byte(level)); err != nil {
		return nil, nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}

	options := &slog.HandlerOptions{Level: threshold}
	switch format {
	case "text":
		return slog.New(contextHandler{loggedHandler{slog.NewTextHandler(out, options)}}), threshold, nil
	case "json":
		return slog.New(contextHandler{loggedHandler{slog.NewJSONHandler(out, options)}}), threshold, nil
	}
	return nil, nil, fmt.Errorf("log format %q: want text or json", format)
}

// Setup makes the server's log and installs it as slog's default. The threshold can be changed later.
func Setup(out io.Writer, level, format string) (*slog.Logger, *slog.LevelVar, error) {
	logger, threshold, err := newLogger(out, level, format)
	if err == nil {
		slog.SetDefault(logger)
		slog.SetLogLoggerLevel(slog.LevelInfo) // of lines that packages write by log
	}
	return logger, threshold, err
}

type contextKey struct{}

// With returns a context whose log records carry more attributes, written like those of slog: slog.Attr values or
// keys and values in turn. A key that is already there is replaced. The usual keys are "request", "message_id", "turn",
// "agent" and "delivery".
func With(ctx context.Context, args ...any) context.Context {
	var record slog.Record
	record.Add(args...)
	earlier := Attributes(ctx)
	attributes := make([]slog.Attr, 0, len(earlier)+record.NumAttrs())
	attributes = append(attributes, earlier...)
	record.Attrs(func(attribute slog.Attr) bool {
		attributes = set(attributes, attribute)
		return true
	})
	return context.WithValue(ctx, contextKey{}, attributes)
}

func set(attributes []slog.Attr, attribute slog.Attr) []slog.Attr {
	for i := range attributes {
		if attributes[i].Key == attribute.Key {
			attributes[i] = attribute
			return attributes
		}
	}
	return append(attributes, attribute)
}

// requestAttribute names the request that a line is about, as the header X-Request-Id of its answer does.
const requestAttribute = "request"

// WithRequest returns a context whose log lines name an HTTP request.
func WithRequest(ctx context.Context, id string) context.Context {
	return With(ctx, slog.String(requestAttribute, id))
}

// Request returns the id of the HTTP request that a context belongs to; empty = it belongs to none.
func Request(ctx context.Context) string {
	for _, attribute := range Attributes(ctx) {
		if attribute.Key == requestAttribute && attribute.Value.Kind() == slog.KindString {
			return attribute.Value.String()
		}
	}
	return ""
}

// Attributes returns what With put into the context; the result must not be changed.
func Attributes(ctx context.Context) []slog.Attr {
	attributes, _ := ctx.Value(contextKey{}).([]slog.Attr)
	return attributes
}

// contextHandler adds the context's attributes to each record.
type contextHandler struct{ slog.Handler }

// Handle passes the record on with the attributes of its context.
func (h contextHandler) Handle(ctx context.Context, record slog.Record) error {
	if attributes := Attributes(ctx); len(attributes) > 0 {
		record = record.Clone()
		record.AddAttrs(attributes...)
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs keeps the context's attributes for derived loggers.
func (h contextHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attributes)}
}

// WithGroup keeps the context's attributes for derived loggers.
func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name)}
}

// loggedHandler lowers warnings and errors to debug if their error says that the log has its cause: an outage of the database would otherwise
// be a line for each message.
type loggedHandler struct{ slog.Handler }

// Handle passes the record on.
func (h loggedHandler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level < slog.LevelWarn || !logged(record) {
		return h.Handler.Handle(ctx, record)
	}
	if !h.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	record.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, record)
}

// logged reports whether an attribute of a record is an error that is in the log.
func logged(record slog.Record) (is bool) {
	record.Attrs(func(attribute slog.Attr) bool {
		if err, isError := attribute.Value.Any().(error); isError {
			known, found := errors.AsType[interface {
				error
				Logged() bool
			}](err)
			is = found && known.Logged()
		}
		return !is
	})
	return is
}

// WithAttrs keeps the rule for derived loggers.
func (h loggedHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return loggedHandler{h.Handler.WithAttrs(attributes)}
}

// WithGroup keeps the rule for derived loggers.
func (h loggedHandler) WithGroup(name string) slog.Handler {
	return loggedHandler{h.Handler.WithGroup(name)}
}
