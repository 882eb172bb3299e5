package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/fault"
)

// put writes a document and reports whether the store acknowledged it.
func put(t *testing.T, to *store.Store, key string) error {
	t.Helper()
	return to.State().Put(t.Context(), "primary", key, []byte("v"), time.Time{})
}

// has reports whether a store has a document.
func has(t *testing.T, from *store.Store, key string) bool {
	t.Helper()
	_, found, err := from.State().Get(t.Context(), "primary", key)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestFormerPrimaryIsRefused: after a promotion the former primary runs again and takes writes. No node uses it: neither one that restarts
// nor one without files, and if no other server is listed, the error says what to do.
func TestFormerPrimaryIsRefused(t *testing.T) {
	former := storetest.NewCluster(t)
	first := openWith(t, store.Options{URL: storetest.URL(former), DataDir: t.TempDir()})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	standby := former.Standby()
	both := storetest.URL(former, standby)

	directory := t.TempDir()
	node := openWith(t, store.Options{URL: both, DataDir: directory})
	if err := put(t, node, "before"); err != nil {
		t.Fatal(err)
	}

	former.Stop()
	standby.Promote()
	await.Until(t, "a write to the new primary", func() bool { return put(t, node, "after") == nil })
	former.Start()
	for range 40 { // more than the pool has connections
		if err := put(t, node, "running"); err != nil {
			t.Fatal(err)
		}
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}

	for name, directory := range map[string]string{"restarted": directory, "new machine": t.TempDir()} {
		again := openWith(t, store.Options{URL: both, DataDir: directory})
		if !has(t, again, "after") || !has(t, again, "running") {
			t.Errorf("%s: the node uses the former primary", name)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}

	_, err := store.Open(t.Context(), store.Options{URL: storetest.URL(former), DataDir: directory})
	for _, want := range []string{former.Host(), "former primary", "timeline 1", "timeline 2", "pg_rewind", filepath.Join(directory, "database.timeline")} {
		if text := fault.InWords(err); !strings.Contains(text, want) {
			t.Errorf("the error %q does not say %q", text, want)
		}
	}

	if err := os.Remove(filepath.Join(directory, "database.timeline")); err != nil {
		t.Fatal(err)
	}
	back := openWith(t, store.Options{URL: storetest.URL(former), DataDir: directory})
	if has(t, back, "after") {
		t.Error("the former primary has what was written after the promotion")
	}
}

// TestFrozenPrimaryIsNotUsedAgain: the primary is frozen while the node has connections to it, the standby is promoted, the former primary
// continues. Whatever the node acknowledges afterwards is on the new primary.
func TestFrozenPrimaryIsNotUsedAgain(t *testing.T) {
	former := storetest.NewCluster(t)
	first := openWith(t, store.Options{URL: storetest.URL(former)})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	standby := former.Standby()
	node := openWith(t, store.Options{URL: storetest.URL(former, standby)})
	if err := put(t, node, "before"); err != nil {
		t.Fatal(err)
	}

	former.Freeze()
	standby.Promote()
	during := make(chan error, 1)
	go func() { during <- node.State().Put(t.Context(), "primary", "during", []byte("v"), time.Time{}) }() // waits for the former primary
	other := openWith(t, store.Options{URL: storetest.URL(standby)})
	await.Until(t, "a write to the new primary", func() bool { return put(t, node, "another") == nil && has(t, other, "another") })
	former.Thaw()

	if err := await.Receive(t, during, "the write that began on the former primary"); err == nil && !has(t, other, "during") {
		t.Error("a write that only the former primary has was acknowledged")
	}
	for range 40 {
		if err := put(t, node, "after"); err != nil {
			t.Fatal(err)
		}
	}
	if !has(t, other, "after") {
		t.Error("the node writes to the former primary")
	}
}

// TestReplicationIsSeen: the store tells no standby, an asynchronous and a synchronous one from each other.
func TestReplicationIsSeen(t *testing.T) {
	server := storetest.NewCluster(t)
	node := openWith(t, store.Options{URL: storetest.URL(server)})
	sees := func(standbys int, synchronous bool) func() bool {
		return func() bool {
			found, has, err := node.Replication(t.Context())
			if err != nil || !has || !found.Primary || !found.Seen {
				t.Fatalf("%+v, %v, %v", found, has, err)
			}
			return len(found.Standbys) == standbys && found.Synchronous == synchronous
		}
	}

	await.Until(t, "no standby is seen", sees(0, false))
	server.Standby()
	await.Until(t, "an asynchronous standby is seen", sees(1, false))

	server.Set(map[string]string{"synchronous_standby_names": "standby"})
	await.Until(t, "a synchronous standby is seen", sees(1, true))
}
