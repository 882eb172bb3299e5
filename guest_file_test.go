package inbox_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"inbox/inboxtest"
)

// TestFilesOfGuestsNeedNoTemporaryDirectory: a picture of a guest waits in data_dir until it is decoded: the root file system of a container is
// read-only, and its /tmp with it.
func TestFilesOfGuestsNeedNoTemporaryDirectory(t *testing.T) {
	server := inboxtest.Start(t, "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_UNVERIFIED=answer")
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))

	picture := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{'x'}, 1<<20))
	body := `{"agent":"echo","message":"look","attachments":[{"name":"a.bin","mimeType":"application/octet-stream","bytes":"` + picture + `"}]}`
	if status, _, answer := server.Read(http.MethodPost, "/v1/chat", "", body); status != http.StatusOK {
		t.Errorf("a picture of a guest: %d %s", status, answer)
	}
	if left, err := os.ReadDir(filepath.Join(server.Config().DataDir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}
