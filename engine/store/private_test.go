package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/database"
	"inbox/internal/await"
)

// TestDatabaseIsPrivate: the files of the database are for this user alone, in a directory that others may read, and also
// when they were made otherwise before.
func TestDatabaseIsPrivate(t *testing.T) {
	directory := t.TempDir()
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}

	check := func(when string) {
		t.Helper()
		found := 0
		for _, path := range database.Files(directory) {
			info, err := os.Stat(path)
			if err != nil {
				continue
			}

			found++
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s has the mode %v", when, path, info.Mode().Perm())
			}
		}
		if found != 6 {
			t.Errorf("%s: %d of 6 files are there", when, found)
		}
	}

	s, err := store.Open(t.Context(), store.Options{DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}

	check("new")
	for _, path := range database.Files(directory) { // as a killed process of an older version leaves them
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	command, err := store.Open(t.Context(), store.Options{DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}

	check("old")
	if err := command.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRewrittenDocuments: documents are replaced once, whichever node is first, keep their end and leave nothing of their old
// text behind.
func TestRewrittenDocuments(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			ctx, options := t.Context(), store.Options{URL: url(t), DataDir: t.TempDir()}
			s := openWith(t, options)
			const secret = "-----BEGIN SECRET KEY-----"
			for n := range 20 {
				expires := time.Time{}
				if n == 7 {
					expires = time.Now().Add(-time.Second)
				}
				if err := s.State().Put(ctx, "keys", fmt.Sprint(n), []byte(secret+strings.Repeat("k", 2000)), expires); err != nil {
					t.Fatal(err)
				}
			}

			if err := s.State().Put(ctx, "others", "1", []byte("plain"), time.Time{}); err != nil {
				t.Fatal(err)
			}

			seal := func(_, key string, value []byte) []byte {
				if bytes.HasPrefix(value, []byte("sealed ")) {
					return value
				}
				return []byte("sealed " + key)
			}

			var group sync.WaitGroup
			replaced := make([]int, 3)
			for node := range replaced {
				other := openWith(t, options)
				group.Go(func() {
					var err error
					if replaced[node], err = other.RewriteDocuments(ctx, []string{"keys", "nothing"}, seal); err != nil {
						t.Error(err)
					}
				})
			}

			await.Done(t, group.Wait, "the rewrite on all nodes")
			slices.Sort(replaced)
			if sum := replaced[0] + replaced[1] + replaced[2]; sum != 20 {
				t.Errorf("%v were replaced, want 20 in all", replaced)
			}

			_, values, err := s.State().List(ctx, "keys", "", 100)
			if err != nil || len(values) != 19 || !bytes.HasPrefix(values[3], []byte("sealed ")) {
				t.Errorf("%d values, %v: the end of one was changed", len(values), err)
			}
			if value, _, err := s.State().Get(ctx, "others", "1"); err != nil || string(value) != "plain" {
				t.Errorf("%s, %v", value, err)
			}

			if name != "sqlite" {
				return
			}

			for _, path := range database.Files(options.DataDir) {
				if content, _ := os.ReadFile(path); bytes.Contains(content, []byte(secret)) {
					t.Errorf("%s has an old text", filepath.Base(path))
				}
			}
		})
	}
}
