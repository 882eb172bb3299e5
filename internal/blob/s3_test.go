package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inbox/internal/blob"
	"inbox/internal/blob/blobtest"
	"inbox/internal/fault"
)

// bucket opens a store in the server's bucket.
func bucket(t testing.TB, server *blobtest.Server, change func(*blob.S3Options)) *blob.S3 {
	t.Helper()
	options := blob.S3Options{
		Endpoint: server.Endpoint, Plain: true, Bucket: blobtest.Bucket, AccessKey: blobtest.AccessKey, SecretKey: blobtest.SecretKey,
		MaxBytes: blobtest.Limit, Spool: t.TempDir(), Dial: (&net.Dialer{}).DialContext,
	}
	if change != nil {
		change(&options)
	}
	store, err := blob.OpenS3(options)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestS3(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	var prefixes atomic.Int64
	blobtest.Run(t, func(t *testing.T) blob.Backend {
		return bucket(t, server, func(o *blob.S3Options) { o.Prefix = "some/where" + string(rune('a'+prefixes.Add(1))) })
	})
}

// copies are the files in which the gateway keeps a content.
func copies(t *testing.T, server *blobtest.Server, digest string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(server.Directory, digest[:2], digest+".*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func age(t *testing.T, files []string, by time.Duration) {
	t.Helper()
	for _, file := range files {
		if err := os.Chtimes(file, time.Now(), time.Now().Add(-by)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestS3PutAgain: a content that is put again counts from then on, and one that is put while it is swept is there afterwards.
func TestS3PutAgain(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	store := bucket(t, server, nil)
	put := func() string {
		digest, err := store.PutBytes(t.Context(), []byte("content"))
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	digest := put()
	put()
	first := copies(t, server, digest)
	if len(first) != 1 {
		t.Fatalf("a fresh content was written again: %v", first)
	}

	age(t, first, 2*time.Hour)
	put()
	if again := copies(t, server, digest); len(again) != 1 || again[0] == first[0] {
		t.Fatalf("copies %v, before %v", again, first)
	}
	if gone, err := store.DeleteIdle(t.Context(), digest, time.Now().Add(-time.Hour)); err != nil || gone {
		t.Fatalf("put just now, and gone: %v, %v", gone, err)
	}

	// The gateway removes directories that became empty, and fails to make a file there at the same moment. Buckets have none.
	if err := os.WriteFile(filepath.Join(server.Directory, digest[:2], "neighbour"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		age(t, copies(t, server, digest), 2*time.Hour)
		ended := make(chan error, 1)
		go func() {
			_, err := store.DeleteIdle(context.Background(), digest, time.Now().Add(-time.Hour))
			ended <- err
		}()
		put()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if _, err := store.Stat(t.Context(), digest); err != nil {
			t.Fatal("after the sweep: ", err)
		}
	}
}

// TestS3Damage: bytes that are not those of the digest are never the end of a content.
func TestS3Damage(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	store := bucket(t, server, nil)
	digest, err := store.PutBytes(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copies(t, server, digest)[0], []byte("CONTENT"), 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := store.Open(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	if read, err := io.ReadAll(content); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("read %q, %v", read, err)
	}
}

// TestS3Refusals: what the server refuses reaches the operator with what to do, and no one else.
func TestS3Refusals(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	for want, change := range map[string]func(*blob.S3Options){
		"make the bucket or correct blob_url": func(o *blob.S3Options) { o.Bucket = "another" },
		"correct blob.access_key":             func(o *blob.S3Options) { o.AccessKey = "unknown" },
		"correct blob.secret_key":             func(o *blob.S3Options) { o.SecretKey = "wrong-wrong" },
		"region":                              func(o *blob.S3Options) { o.Region = "eu-west-1" },
		"connection refused":                  func(o *blob.S3Options) { o.Endpoint = "127.0.0.1:1" },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			store := bucket(t, server, change)
			_, err := store.ID(t.Context())
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v; want %q", err, want)
			}
			if public := fault.Of(err).Public; strings.Contains(public, "bucket") || strings.Contains(public, server.Endpoint) {
				t.Errorf("peers read %q", public)
			}
			if strings.Contains(err.Error(), "wrong-wrong") {
				t.Error("the secret is in the error")
			}
		})
	}
}

// TestS3Dial: every connection is made by the dialer of the caller.
func TestS3Dial(t *testing.T) {
	t.Parallel()
	refused := errors.New("not by this policy")
	store, err := blob.OpenS3(blob.S3Options{
		Endpoint: "127.0.0.1:1", Plain: true, Bucket: "bucket", AccessKey: "a", SecretKey: "s",
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, refused },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.ID(t.Context()); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}

// TestS3Memory: a content takes memory for its beginning, whatever its length is.
func TestS3Memory(t *testing.T) {
	server := blobtest.StartServer(t)
	store := bucket(t, server, func(o *blob.S3Options) { o.MaxBytes = 64 << 20 })
	const size = 48 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	digest, stored, err := store.Put(t.Context(), io.LimitReader(zeros{}, size))
	runtime.ReadMemStats(&after)
	if err != nil || stored != size {
		t.Fatalf("%d bytes, %v", stored, err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 4<<20 {
		t.Errorf("allocated %d bytes for %d", taken, size)
	}

	content, err := store.Open(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	runtime.ReadMemStats(&before)
	read, err := io.Copy(io.Discard, content)
	runtime.ReadMemStats(&after)
	if err != nil || read != size {
		t.Fatalf("read %d bytes, %v", read, err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 4<<20 {
		t.Errorf("allocated %d bytes to read %d", taken, size)
	}
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// TestS3Spool: what waits on disk has no name and is announced to the guard of the disk.
func TestS3Spool(t *testing.T) {
	t.Parallel()
	server := blobtest.StartServer(t)
	directory, announced := t.TempDir(), int64(0)
	store := bucket(t, server, func(o *blob.S3Options) {
		o.Spool, o.Writes = directory, func(bytes int64) { announced += bytes }
	})
	content := bytes.Repeat([]byte("x"), 300_000)
	if _, _, err := store.Put(t.Context(), bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) != 0 || announced != int64(len(content)) {
		t.Errorf("left %v, %v; announced %d bytes", left, err, announced)
	}
}
