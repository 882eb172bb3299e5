package storage

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
)

// TestSealedDocumentsAreDocuments: who keeps keys sees none of the sealing.
func TestSealedDocumentsAreDocuments(t *testing.T) {
	const space, key = "keys", "rsa:somebody"
	ctx, directory := t.Context(), t.TempDir()
	options := Options{Version: "1.2.3", DataDir: directory, DatabaseURL: "sqlite", DatabaseName: "sqlite", Sealed: []string{space}, Logger: slog.Default()}
	opened, err := Open(ctx, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	files, err := FilesIn("data_dir", filepath.Join(directory, "blobs"), nil)
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := Bind(ctx, options, opened, files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Bind(ctx, options, opened, files); err != nil {
		t.Fatal(err)
	}
	records, err := opened.AuditRecords(ctx, exchange.AuditFilter{Limit: 10})
	if err != nil || len(records) != 1 || records[0].Code != "server:first_start" || !strings.HasPrefix(records[0].Detail, "inbox 1.2.3, schema ") {
		t.Errorf("after two starts the trail has %+v, %v", records, err)
	}

	v := sealer.Vault()
	if _, inserted, err := v.PutIfAbsent(ctx, space, key, []byte("one"), time.Time{}); err != nil || !inserted {
		t.Errorf("%v %v", inserted, err)
	}
	if current, inserted, err := v.PutIfAbsent(ctx, space, key, []byte("two"), time.Time{}); err != nil || inserted || string(current) != "one" {
		t.Errorf("%s %v %v", current, inserted, err)
	}
	if swapped, err := v.Swap(ctx, space, key, []byte("two"), []byte("three"), time.Time{}); err != nil || swapped {
		t.Errorf("%v %v", swapped, err)
	}
	if swapped, err := v.Swap(ctx, space, key, []byte("one"), []byte("three"), time.Time{}); err != nil || !swapped {
		t.Errorf("%v %v", swapped, err)
	}
	if values, err := v.Several(ctx, space, []string{key}); err != nil || string(values[key]) != "three" {
		t.Errorf("%s %v", values[key], err)
	}
	if keys, values, err := v.List(ctx, space, "rsa:somebodx", 1); err != nil || len(keys) != 1 || string(values[0]) != "three" {
		t.Errorf("%v %s %v", keys, values, err)
	}
	kept, _, err := opened.State().Get(ctx, space, key)
	if err != nil || !sealedForm(kept) {
		t.Errorf("kept as %q, %v", kept, err)
	}
	if err := opened.State().Put(ctx, space, "rsa:other", kept, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Get(ctx, space, "rsa:other"); err == nil {
		t.Error("a key opens in the place of another one")
	}
}
