// Package blobtest is the conformance suite of blob.Backend: every implementation runs it in a test of its own. It also starts a server
// that speaks the S3 protocol. It is never part of the server.
package blobtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"inbox/internal/blob"
	"inbox/internal/fault"
)

// Limit is the size limit that open must set for its store.
const Limit = 1 << 20

// Run checks the store that open makes; each case gets an empty one.
func Run(t *testing.T, open func(t *testing.T) blob.Backend) {
	t.Helper()
	cases := map[string]func(*testing.T, blob.Backend){
		"round trip": roundTrip, "stored once": storedOnce, "limit": limit, "bad digests": badDigests,
		"missing": missing, "delete": deletes, "failing reader": failingReader, "ended context": endedContext,
		"many writers of one content": manyWriters, "parts": parts, "idle contents": idle, "the store has a name": identifier,
		"staged contents": staged, "one of many stays": stagedByMany,
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

func read(t *testing.T, store blob.Backend, digest string) []byte {
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

func roundTrip(t *testing.T, store blob.Backend) {
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

func storedOnce(t *testing.T, store blob.Backend) {
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

func limit(t *testing.T, store blob.Backend) {
	content := random(t, Limit+1)
	_, _, err := store.Put(t.Context(), bytes.NewReader(content))
	wantKind(t, "put", err, fault.TooLarge)
	_, err = store.PutBytes(t.Context(), content)
	wantKind(t, "put bytes", err, fault.TooLarge)
	_, err = store.Stat(t.Context(), digestOf(content))
	wantKind(t, "stat", err, fault.NotFound)
}

func badDigests(t *testing.T, store blob.Backend) {
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

func missing(t *testing.T, store blob.Backend) {
	digest := digestOf([]byte("never stored"))
	_, err := store.Open(t.Context(), digest)
	wantKind(t, "open", err, fault.NotFound)
	_, err = store.Stat(t.Context(), digest)
	wantKind(t, "stat", err, fault.NotFound)
}

func deletes(t *testing.T, store blob.Backend) {
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

// staged: withdrawing removes what the call itself created, and nothing that another caller has put before or since.
func staged(t *testing.T, store blob.Backend) {
	stage := func(content []byte) func() error {
		t.Helper()
		withdraw, err := store.Stage(t.Context(), content)
		if err != nil {
			t.Fatal(err)
		}
		if withdraw == nil {
			withdraw = func() error { return nil }
		}
		read(t, store, digestOf(content))
		return withdraw
	}

	before, since, again := random(t, 100), random(t, 100), random(t, 100)
	if _, err := store.PutBytes(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	withdrawn := []func() error{stage(before), stage(since), stage(again)}
	if _, _, err := store.Put(t.Context(), bytes.NewReader(since)); err != nil {
		t.Fatal(err)
	}
	stage(again)
	for _, withdraw := range withdrawn {
		if err := withdraw(); err != nil {
			t.Fatal(err)
		}
	}
	for _, content := range [][]byte{before, since, again} {
		read(t, store, digestOf(content))
	}

	_, err := store.Stage(t.Context(), random(t, Limit+1))
	wantKind(t, "stage", err, fault.TooLarge)
}

// stagedByMany: of callers who stage one content at the same time all but one withdraw, and that one has it.
func stagedByMany(t *testing.T, store blob.Backend) {
	for range 20 {
		content := random(t, 1000)
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				withdraw, err := store.Stage(t.Context(), content)
				if err == nil && withdraw != nil && i > 0 {
					err = withdraw()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		read(t, store, digestOf(content))
	}
}

func failingReader(t *testing.T, store blob.Backend) {
	cut := io.MultiReader(strings.NewReader("half of it"), iotest.ErrReader(io.ErrUnexpectedEOF))
	_, _, err := store.Put(t.Context(), cut)
	wantKind(t, "put", err, fault.Unavailable)
	_, err = store.Stat(t.Context(), digestOf([]byte("half of it")))
	wantKind(t, "stat", err, fault.NotFound)
	said := fault.New(fault.TooLarge, "body is over the limit")
	_, _, err = store.Put(t.Context(), iotest.ErrReader(said))
	wantKind(t, "a reader's own fault", err, fault.TooLarge)
}

func endedContext(t *testing.T, store blob.Backend) {
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

func manyWriters(t *testing.T, store blob.Backend) {
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

// parts reads from the middle on, as a client that resumes does.
func parts(t *testing.T, store blob.Backend) {
	content := random(t, 200_000)
	digest, err := store.PutBytes(t.Context(), content)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := store.Open(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }() // it was only read

	seekable, is := opened.(io.ReadSeeker)
	if !is {
		t.Fatal("contents cannot be seeked, so no part of them can be served")
	}
	if end, err := seekable.Seek(0, io.SeekEnd); err != nil || end != int64(len(content)) {
		t.Fatalf("the end is at %d, %v", end, err)
	}
	for _, offset := range []int64{150_000, 3, 0, int64(len(content))} {
		if at, err := seekable.Seek(offset, io.SeekStart); err != nil || at != offset {
			t.Fatalf("seek to %d: %d, %v", offset, at, err)
		}
		rest, err := io.ReadAll(seekable)
		if err != nil || !bytes.Equal(rest, content[offset:]) {
			t.Fatalf("%d bytes from %d on, %v", len(rest), offset, err)
		}
	}
	if _, err := seekable.Seek(-1, io.SeekStart); err == nil {
		t.Error("seek before the beginning")
	}
}

func idle(t *testing.T, store blob.Backend) {
	before, after := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	var put []string
	for i := range 3 {
		digest, err := store.PutBytes(t.Context(), []byte{byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		put = append(put, digest)
	}
	slices.Sort(put)

	listed := func(since time.Time) (found []string) {
		if err := store.EachIdle(t.Context(), since, func(digest string) error { found = append(found, digest); return nil }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := listed(before); len(found) != 0 {
		t.Errorf("idle for an hour: %v", found)
	}
	if found := listed(after); !slices.Equal(found, put) {
		t.Errorf("idle: %v, want %v", found, put)
	}
	stop := errors.New("stop")
	if err := store.EachIdle(t.Context(), after, func(string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of a visit came back as %v", err)
	}

	for since, want := range map[time.Time]bool{before: false, after: true} {
		if gone, err := store.DeleteIdle(t.Context(), put[boolIndex(want)], since); err != nil || gone != want {
			t.Errorf("delete what is idle since %v: %v, %v", since, gone, err)
		}
	}
	if found := listed(after); !slices.Equal(found, []string{put[0], put[2]}) {
		t.Errorf("left: %v", found)
	}
	_, err := store.DeleteIdle(t.Context(), "../x", after)
	wantKind(t, "delete idle", err, fault.Malformed)
}

func boolIndex(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func identifier(t *testing.T, store blob.Backend) {
	for _, want := range []string{"", "0199-a", "0199-b"} {
		if want != "" {
			if err := store.SetID(t.Context(), want); err != nil {
				t.Fatal(err)
			}
		}
		if id, err := store.ID(t.Context()); err != nil || id != want {
			t.Fatalf("the store is %q, %v; want %q", id, err, want)
		}
	}
	if err := store.EachIdle(t.Context(), time.Now().Add(time.Hour), errors.New); err != nil {
		t.Errorf("the id is listed as a content: %v", err)
	}
}

func wantKind(t *testing.T, operation string, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: got %v, want a fault %s", operation, err, kind)
	}
}
