package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/inboxtest"
)

// TestDomainThatARunningServerServesIsNotRemoved: a server that was not restarted since the table was removed still accepts messages for it.
func TestDomainThatARunningServerServesIsNotRemoved(t *testing.T) {
	data := t.TempDir()
	directory := filepath.Join(data, "domains", "second.example")
	if err := os.MkdirAll(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("INBOX_DATA_DIR", data)
	t.Setenv("INBOX_PUBLIC_URL", "http://localhost:8080")
	t.Chdir(t.TempDir())
	remove := func() error {
		root := newRoot()
		root.SetArgs([]string{"domains", "remove", "second.example", "--erase"})
		root.SetOut(new(bytes.Buffer))
		return root.Execute()
	}

	t.Run("while it is served", func(t *testing.T) {
		inboxtest.Start(t, "INBOX_DATA_DIR="+directory, "INBOX_DATABASE_URL=sqlite")
		if err := remove(); err == nil || !strings.Contains(err.Error(), "a running server still serves second.example") {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(directory, "inbox.db")); err != nil {
			t.Error("the database is gone:", err)
		}
	})
	if err := remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(directory); !os.IsNotExist(err) {
		t.Error("the directory is left:", err)
	}
}
