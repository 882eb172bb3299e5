package notice_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/engine/notice"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/fault"
)

// TestWebhooksAreToldWithoutTheDatabase: where not even notices can be written, webhooks hear of it after a minute, and once an hour.
func TestWebhooksAreToldWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	var bodies []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
	}))
	t.Cleanup(hook.Close)

	directory := t.TempDir()
	open := func() *store.Store {
		opened, err := store.Open(t.Context(), store.Options{DataDir: directory, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return opened
	}
	if err := open().Close(); err != nil {
		t.Fatal(err)
	}
	storetest.Damage(t, filepath.Join(directory, store.File), "notice_conditions")
	opened := open()
	t.Cleanup(func() { _ = opened.Close() })

	now, bad := time.Now(), true
	settings := notice.Settings{
		Addresses: []notice.Address{{Label: "hook", URL: hook.URL}, {Label: "person", Person: "ann@home.example"}}, Zone: time.UTC, Secret: secret,
	}
	service := notice.New(notice.Options{
		Store: opened.Notifier(), Domain: "inbox.test", Current: func() notice.Settings { return settings }, Now: func() time.Time { return now },
		Observe: func(context.Context) []notice.Observation {
			return []notice.Observation{
				{Kind: exchange.NoticeDatabase, Subject: "here", Bad: bad, Reason: "it is damaged"}, {Kind: exchange.NoticeDisk, Subject: "full", Bad: true},
			}
		},
		Client: func(string) notice.Client { return http.DefaultClient }, Logger: slog.New(slog.DiscardHandler),
	})

	for _, step := range []struct {
		after time.Duration
		bad   bool
		told  int
	}{{0, true, 0}, {30 * time.Second, true, 0}, {30 * time.Second, true, 1}, {time.Minute, true, 1}, {notice.Period, false, 1}, {time.Second, true, 1}, {time.Minute, true, 2}} {
		now, bad = now.Add(step.after), step.bad
		err := service.Round(t.Context())
		if !errors.Is(err, fault.ErrDamaged) {
			t.Fatalf("round: %v", err)
		}
		notice.TellDirectly(service, t.Context(), err)
		if len(bodies) != step.told {
			t.Errorf("after %s: %d requests, want %d", step.after, len(bodies), step.told)
		}
	}
	if len(bodies) > 0 && (!strings.Contains(bodies[0], `"kind":"database"`) || !strings.Contains(bodies[0], "it is damaged")) {
		t.Error(bodies[0])
	}
	settings.Kinds, now = []string{exchange.NoticeTurn}, now.Add(2*notice.Period)
	notice.TellDirectly(service, t.Context(), fault.ErrStore)
	if len(bodies) != 2 {
		t.Error("it is told of a kind that the operator did not choose")
	}
}
