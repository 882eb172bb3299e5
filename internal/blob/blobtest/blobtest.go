// Package blobtest is the conformance suite of blob.Store: every implementation runs it in a test of its own. It is
// never part of the server.
package blobtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"inbox/internal/blob"
	"inbox/internal/fault"
)

// Limit is the size limit that open must set for its store.
const Limit = 1 << 20

// Run checks the store that open makes; each case gets an empty one.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	t.Helper()
	cases := map[string]func(*testing.T, blob.Store){
		"round trip": roundTrip, "stored once": storedOnce, "limit": limit, "bad digests": badDigests,
		"missing": missing, "delete": deletes, "failing reader": failingReader, "ended context": endedContext,
		"many writers of one content": manyWriters,
	}
	for name, check := range cases {
		t.Run(name, func(t *testing.T) { check(t, open(t)) })
	}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func random(t *testing.T, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content)
	return content
}

func read(t *testing.T, store blob.Store, digest string) []byte {
	t.Helper()
	file, err := store.Open(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}

	content, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return content
}

func roundTrip(t *testing.T, store blob.Store) {
	for _, size := range []int{0, 1, 4096, 100_000, Limit} {
		content := random(t, size)
		digest, stored, err := store.Put(t.Context(), iotest.OneByteReader(bytes.NewReader(content[:min(size, 100)])))
		if err != nil || digest != digestOf(content[:min(size, 100)]) || stored != int64(min(size, 100)) {
			t.Fatalf("put: digest %s, %d bytes, %v", digest, stored, err)
		}

		digest, stored, err = store.Put(t.Context(), bytes.NewReader(content))
		if err != nil || digest != digestOf(content) || stored != int64(size) {
			t.Fatalf("put of %d bytes: digest %s, %d bytes, %v", size, digest, stored, err)
		}
		if !bytes.Equal(read(t, store, digest), content) {
			t.Fatalf("content of %d bytes came back different", size)
		}
		if got, err := store.Stat(t.Context(), digest); err != nil || got != int64(size) {
			t.Fatalf("stat = %d, %v; want %d", got, err, size)
		}
	}
}

func storedOnce(t *testing.T, store blob.Store) {
	content := random(t, 5000)
	first, err := store.PutBytes(t.Context(), content)
	if err != nil {
		t.Fatal(err)
	}

	second, _, err := store.Put(t.Context(), bytes.NewReader(content))
	if err != nil || first != second || first != digestOf(content) {
		t.Fatalf("digests %s and %s, %v", first, second, err)
	}
	if third, err := store.PutBytes(t.Context(), content); err != nil || third != first {
		t.Fatalf("third put: %s, %v", third, err)
	}
}

func limit(t *testing.T, store blob.Store) {
	content := random(t, Limit+1)
	_, _, err := store.Put(t.Context(), bytes.NewReader(content))
	wantKind(t, "put", err, fault.TooLarge)
	_, err = store.PutBytes(t.Context(), content)
	wantKind(t, "put bytes", err, fault.TooLarge)
	_, err = store.Stat(t.Context(), digestOf(content))
	wantKind(t, "stat", err, fault.NotFound)
}

func badDigests(t *testing.T, store blob.Store) {
	good := digestOf(nil)
	for _, digest := range []string{
		"", "ab", good + "0", good[1:], strings.ToUpper(good), strings.Repeat("g", 64),
		"../../../../etc/passwd", strings.Repeat("../", 21) + "x", "/" + good[1:], good[:62] + "/.", good[:63] + "\x00",
	} {
		_, err := store.Open(t.Context(), digest)
		wantKind(t, "open "+digest, err, fault.Malformed)
		_, err = store.Stat(t.Context(), digest)
		wantKind(t, "stat "+digest, err, fault.Malformed)
		wantKind(t, "delete "+digest, store.Delete(t.Context(), digest), fault.Malformed)
	}
}

func missing(t *testing.T, store blob.Store) {
	digest := digestOf([]byte("never stored"))
	_, err := store.Open(t.Context(), digest)
	wantKind(t, "open", err, fault.NotFound)
	_, err = store.Stat(t.Context(), digest)
	wantKind(t, "stat", err, fault.NotFound)
}

func deletes(t *testing.T, store blob.Store) {
	digest, err := store.PutBytes(t.Context(), []byte("to be removed"))
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := store.Delete(t.Context(), digest); err != nil {
			t.Fatal(err)
		}
	}

	_, err = store.Open(t.Context(), digest)
	wantKind(t, "open", err, fault.NotFound)

	if again, err := store.PutBytes(t.Context(), []byte("to be removed")); err != nil || again != digest {
		t.Fatalf("put after delete: %s, %v", again, err)
	}
}

func failingReader(t *testing.T, store blob.Store) {
	cut := io.MultiReader(strings.NewReader("half of it"), iotest.ErrReader(io.ErrUnexpectedEOF))
	_, _, err := store.Put(t.Context(), cut)
	wantKind(t, "put", err, fault.Unavailable)
	_, err = store.Stat(t.Context(), digestOf([]byte("half of it")))
	wantKind(t, "stat", err, fault.NotFound)
	said := fault.New(fault.TooLarge, "body is over the limit")
	_, _, err = store.Put(t.Context(), iotest.ErrReader(said))
	wantKind(t, "a reader's own fault", err, fault.TooLarge)
}

func endedContext(t *testing.T, store blob.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := store.Put(ctx, strings.NewReader("late"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	if _, err = store.PutBytes(ctx, []byte("late")); !errors.Is(err, context.Canceled) {
		t.Errorf("put bytes: %v", err)
	}
}

func manyWriters(t *testing.T, store blob.Store) {
	content := random(t, 10_000)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, _, err := store.Put(t.Context(), bytes.NewReader(content)); err != nil {
				t.Error(err)
			}
		})
	}

	group.Wait()
	if !bytes.Equal(read(t, store, digestOf(content)), content) {
		t.Error("content came back different")
	}
}

func wantKind(t *testing.T, operation string, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: got %v, want a fault %s", operation, err, kind)
	}
}
