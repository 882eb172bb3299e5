package inbox

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/e2e/load"
)

// TestFilesOfRefusedMailGo: the files of a mail are kept before the door decides; those of one that was refused go with the
// next sweep, those of one that waits for the operator stay, and so do those that were put lately.
func TestFilesOfRefusedMailGo(t *testing.T) {
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	directory := t.TempDir()
	file := filepath.Join(directory, "inbox.toml")
	text := fmt.Sprintf(`
domain = "inbox.test"
public_url = "http://localhost:8080"
data_dir = %q
http = { listen = "127.0.0.1:0" }
smtp = { listen = "127.0.0.1:0" }
dns = { resolver = %q }
federation = { allow_private = true }
log = { level = "error" }
[[agents]]
name = "strict"
kind = "echo"
unverified = "refuse"
[[agents]]
name = "patient"
kind = "echo"
unverified = "hold"
`, filepath.Join(directory, "data"), names.Address())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := startServerFrom(t, file)
	if err := bringFiles(server, "patient", "wanted"); err != nil {
		t.Fatal(err)
	}
	kept := filesBelow(t, server)
	if err := bringFiles(server, "strict", "unwanted"); err == nil || !strings.Contains(err.Error(), "5.7") {
		t.Fatalf("a mail without proof got %v", err)
	}
	if all := filesBelow(t, server); len(kept) == 0 || len(all) <= len(kept) {
		t.Fatalf("%d files after the mail that waits, %d after the refused one", len(kept), len(all))
	}
	sweep := func(want int) {
		t.Helper()
		if err := server.store.State().Delete(t.Context(), sweptNamespace, sweptKey); err != nil { // it was swept at the start
			t.Fatal(err)
		}
		if _, err := server.sweepOrphans(t.Context(), orphanIdle); err != nil {
			t.Fatal(err)
		}
		if left := filesBelow(t, server); len(left) != want {
			t.Errorf("%d files are left, want %d", len(left), want)
		}
	}
	all := filesBelow(t, server)
	sweep(len(all))
	for _, path := range all {
		old := time.Now().Add(-2 * orphanIdle)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.sweepOrphans(t.Context(), orphanIdle); err != nil || len(filesBelow(t, server)) != len(all) {
		t.Errorf("swept although another node did just now: %v", err)
	}
	sweep(len(kept))
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("a file of the mail that waits is gone: %v", err)
		}
	}
}

// bringFiles brings a mail with two files that are too large to stand in the message itself.
func bringFiles(server *Server, agent, what string) error {
	sender, err := load.DialMail(server.MailAddr())
	if err != nil {
		return err
	}
	defer sender.Close()
	var mail strings.Builder
	fmt.Fprintf(&mail, "From: ann@sender.test\r\nTo: %s@inbox.test\r\nSubject: Files\r\nMessage-ID: <%s@sender.test>\r\nMIME-Version: 1.0\r\n", agent, what)
	mail.WriteString("Content-Type: multipart/mixed; boundary=cut\r\n\r\n--cut\r\nContent-Type: text/plain\r\n\r\nlook\r\n")
	for n := range 2 {
		fmt.Fprintf(&mail, "--cut\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=f%d\r\nContent-Transfer-Encoding: base64\r\n\r\n", n)
		content := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fmt.Sprint(what, n, " "), 40_000)))
		for len(content) > 76 {
			mail.WriteString(content[:76] + "\r\n")
			content = content[76:]
		}
		mail.WriteString(content + "\r\n")
	}
	mail.WriteString("--cut--\r\n")
	return sender.Send("ann@sender.test", agent+"@inbox.test", []byte(mail.String()))
}

// filesBelow returns the paths of the kept contents.
func filesBelow(t *testing.T, server *Server) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(server.config.DataDir, "blobs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && len(entry.Name()) == 64 {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
