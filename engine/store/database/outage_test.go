package database

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/telemetry"
)

// TestOutageIsReportedOnceAMinute: an outage has a line when it begins, one a minute while it lasts and one when it has ended, however many
// transactions fail; what failed is shown at debug.
func TestOutageIsReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger, err := telemetry.NewLogger(&log, "warn", "text")
		if err != nil {
			t.Fatal(err)
		}
		o := &outage{logger: logger}
		lines := func() int {
			t.Helper()
			count := strings.Count(log.String(), "\n")
			log.Reset()
			return count
		}
		fail := func() error {
			err := o.note(Unavailable("connect", errors.New("refused")))
			logger.Error("a message met the outage", "error", err)
			return err
		}

		for range 1000 {
			_ = fail()
		}
		if got := lines(); got != 1 {
			t.Errorf("%d lines when the outage begins, want 1", got)
		}
		for range 10 * 60 { // ten minutes
			<-time.After(time.Second)
			_ = fail()
		}
		if text := log.String(); !strings.Contains(text, "failures=1060") {
			t.Errorf("the line after a minute has no count:\n%s", text)
		}
		if got := lines(); got != 10 {
			t.Errorf("%d lines in ten minutes, want 10", got)
		}

		for range 5 { // some still fail
			_ = o.note(nil)
			_ = fail()
			<-time.After(outageQuiet / 2)
		}
		if got := lines(); got != 0 {
			t.Errorf("%d lines while transactions fail and succeed, want none", got)
		}
		<-time.After(outageQuiet)
		for range 100 {
			if err := o.note(nil); err != nil {
				t.Fatal(err)
			}
		}
		if text := log.String(); !strings.Contains(text, "the database is available again") || strings.Count(text, "\n") != 1 {
			t.Errorf("the end of the outage has the lines %q, want one", text)
		}

		log.Reset()
		for name, err := range map[string]error{"caller has left": Unavailable("read", context.Canceled), "work": errors.New("not the database"), "closed": Unavailable("write", errClosed)} {
			if got := o.note(err); got != err || lines() != 0 { //nolint:errorlint // the same value is meant
				t.Errorf("%s: %v is an outage", name, got)
			}
		}

		debug, err := telemetry.NewLogger(&log, "debug", "json")
		if err != nil {
			t.Fatal(err)
		}
		debug.With("agent", "a").WithGroup("g").Warn("a message met the outage", "error", reported{errors.New("refused")})
		if text := log.String(); !strings.Contains(text, `"level":"DEBUG"`) || !strings.Contains(text, `"agent":"a"`) {
			t.Errorf("at debug the log has %q", text)
		}
		slog.New(debug.Handler()).Warn("of another kind", "error", errors.New("refused"))
		if text := log.String(); !strings.Contains(text, `"level":"WARN"`) {
			t.Errorf("another warning is lowered: %s", text)
		}
	})
}
