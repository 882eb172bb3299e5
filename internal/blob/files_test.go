package blob_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/blob/blobtest"
)

func TestFiles(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Backend { return open(t, t.TempDir()) })
}

func open(t *testing.T, dir string) *blob.Files {
	t.Helper()
	store, err := blob.OpenFiles(dir, blob.Options{MaxBytes: blobtest.Limit})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestLayoutAndLeftovers(t *testing.T) {
	dir := t.TempDir()
	digest, err := open(t, dir).PutBytes(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, digest[:2], digest[2:4], digest))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) != 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

// A killed process leaves its temporary files; another one may be writing right now.
func TestSweepRemovesOnlyOldTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	old, fresh := filepath.Join(dir, "tmp", "put-old"), filepath.Join(dir, "tmp", "put-fresh")
	for _, path := range []string{old, fresh} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(old, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("old temporary file: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("fresh temporary file: %v", err)
	}
}

func TestOpenFilesNamesTheDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.OpenFiles(filepath.Join(file, "blobs"), blob.Options{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v does not name %s", err, file)
	}
}

func FuzzValidDigest(f *testing.F) {
	f.Add(strings.Repeat("0", 64))
	f.Add("../../etc/passwd")
	f.Fuzz(func(t *testing.T, text string) {
		if blob.ValidDigest(text) && (len(text) != 64 || strings.Trim(text, "0123456789abcdef") != "") {
			t.Errorf("%q was taken as a digest", text)
		}
	})
}

func BenchmarkPutBytes(b *testing.B) {
	store, err := blob.OpenFiles(b.TempDir(), blob.Options{})
	if err != nil {
		b.Fatal(err)
	}
	content := make([]byte, 64<<10)
	for i := 0; b.Loop(); i++ {
		content[0], content[1], content[2] = byte(i), byte(i>>8), byte(i>>16)
		if _, err := store.PutBytes(b.Context(), content); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDeleteIdle: content that was put since stays, whatever happens at the same time.
func TestDeleteIdle(t *testing.T) {
	directory := t.TempDir()
	s := open(t, directory)
	digest, err := s.PutBytes(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	age := func() {
		if err := os.Chtimes(filepath.Join(directory, digest[:2], digest[2:4], digest), old, old); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(want bool) {
		t.Helper()
		if got, err := s.DeleteIdle(t.Context(), digest, time.Now().Add(-time.Hour)); err != nil || got != want {
			t.Fatalf("gone %v, %v", got, err)
		}
	}
	gone(false)
	age()
	if _, err := s.PutBytes(t.Context(), []byte("content")); err != nil { // known, and needed again
		t.Fatal(err)
	}
	gone(false)
	age()
	gone(true)
	gone(true)
	if _, err := s.DeleteIdle(t.Context(), "../x", time.Now()); err == nil {
		t.Error("a path is no digest")
	}
	other := open(t, directory) // as another process would
	for range 1000 {            // the one who has put it finds it, the one who sweeps
		if _, err := s.PutBytes(t.Context(), []byte("content")); err != nil {
			t.Fatal(err)
		}
		age()
		done := make(chan error, 1)
		go func() {
			_, err := other.DeleteIdle(context.Background(), digest, time.Now().Add(-time.Hour))
			done <- err
		}()
		if _, err := s.PutBytes(t.Context(), []byte("content")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(t.Context(), digest); err != nil {
			t.Fatal("at once: ", err)
		}
		if err := await.Receive(t, done, "the end of the sweep"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(t.Context(), digest); err != nil {
			t.Fatal("after the sweep: ", err)
		}
	}
}

// TestSize: contents count once, whatever else is in the directory.
func TestSize(t *testing.T) {
	dir := t.TempDir()
	files := open(t, dir)
	for _, content := range []string{"one", "four", "one"} {
		if _, err := files.PutBytes(t.Context(), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.SetID(t.Context(), "an id"); err != nil {
		t.Fatal(err)
	}
	if count, bytes, err := files.Size(t.Context()); count != 2 || bytes != 7 || err != nil {
		t.Errorf("%d files, %d bytes, %v", count, bytes, err)
	}
}

// TestWithdrawnFileIsGone: what was staged and withdrawn leaves nothing on disk.
func TestWithdrawnFileIsGone(t *testing.T) {
	store, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	withdraw, err := store.Stage(t.Context(), []byte("of a refused message"))
	if err != nil || withdraw == nil {
		t.Fatal(err)
	}
	for range 2 { // a second time it is not there any more
		if err := withdraw(); err != nil {
			t.Fatal(err)
		}
	}
	if count, bytes, err := store.Size(t.Context()); count != 0 || bytes != 0 || err != nil {
		t.Errorf("%d files of %d bytes are left, %v", count, bytes, err)
	}
}
