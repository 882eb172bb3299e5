package store_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/fault"
)

// TestDamagedPage: a page of turns that is damaged is an error of its own, which is logged once, and neither the probe nor the examination
// passes: with the file open or not. The probe wrote one row of another table and found nothing wrong.
func TestDamagedPage(t *testing.T) {
	for name, running := range map[string]bool{"before the start": false, "while the server runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			var log bytes.Buffer
			open := func() *store.Store {
				s, err := store.Open(t.Context(), store.Options{DataDir: directory, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			s := open()
			for n := range 200 { // more than one page
				if err := accept(t.Context(), s, sample(int64(n))); err != nil {
					t.Fatal(err)
				}
			}
			if problems, able, err := s.Examine(t.Context()); !able || err != nil || len(problems) > 0 {
				t.Fatalf("before: %v, %v, %v", problems, able, err)
			}
			if !running {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			storetest.Damage(t, filepath.Join(directory, store.File), "turns")
			if !running {
				s = open()
			}

			for range 50 {
				if err := s.Probe(t.Context()); !errors.Is(err, fault.ErrDamaged) || !errors.Is(err, fault.ErrStore) || !fault.Is(err, fault.Unavailable) {
					t.Fatalf("probe: %v", err)
				}
			}
			for n := range 50 {
				if err := accept(t.Context(), s, sample(int64(1000+n))); !running && !errors.Is(err, fault.ErrDamaged) {
					t.Fatalf("accept: %v", err)
				}
			}
			if s.Damage() == nil || !errors.Is(s.Damage().Err, fault.ErrDamaged) {
				t.Error("the damage is not remembered")
			}
			if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "inbox restore") {
				t.Errorf("%d lines:\n%s", lines, log.String())
			}
			if problems, _, err := s.Examine(t.Context()); err != nil || len(problems) == 0 {
				t.Errorf("examination: %v, %v", problems, err)
			}
		})
	}
}

// TestProbeLeavesNothing: the rows of a message that the probe writes are gone with its commit, and no one is notified of them.
func TestProbeLeavesNothing(t *testing.T) {
	for name, address := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openWith(t, store.Options{URL: address(t), Notify: func(channel, payload string) { t.Errorf("notified of %s %s", channel, payload) }})
			if err := s.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			view, err := s.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range []string{"turns", "events", "jobs"} {
				if view.Rows[table] != 0 {
					t.Errorf("%s has %d rows", table, view.Rows[table])
				}
			}
			if err := view.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
