package acme

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger gives the library a logger that writes to ours. What it reports as information is for who debugs certificates: the
// lines for operators are written by Client.observe.
func zapLogger(logger *slog.Logger) *zap.Logger { return zap.New(&core{logger: logger}) }

// core is a zapcore.Core over slog.
type core struct {
	logger *slog.Logger
	with   []zapcore.Field
}

func level(l zapcore.Level) slog.Level {
	if l >= zapcore.WarnLevel {
		return slog.LevelInfo // repeated by the library at each attempt; failures are reported once by observe
	}
	return slog.LevelDebug
}

// Enabled reports whether a line of the level is written.
func (c *core) Enabled(l zapcore.Level) bool { return c.logger.Enabled(context.Background(), level(l)) }

// With returns a core whose lines have the fields.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.logger, slices.Concat(c.with, fields)}
}

// Check adds the core to a line that it writes.
func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write writes a line.
func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	encoder := zapcore.NewMapObjectEncoder()
	for _, field := range slices.Concat(c.with, fields) {
		field.AddTo(encoder)
	}

	attributes := make([]slog.Attr, 0, len(encoder.Fields))
	for name, value := range encoder.Fields {
		attributes = append(attributes, slog.Any(name, value))
	}
	slices.SortFunc(attributes, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	c.logger.LogAttrs(context.Background(), level(entry.Level), "certificate authority", append([]slog.Attr{slog.String("event", entry.Message)}, attributes...)...)
	return nil
}

// Sync does nothing: slog does not buffer.
func (c *core) Sync() error { return nil }
