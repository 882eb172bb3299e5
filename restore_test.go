package inbox_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox"
	"inbox/engine/store/storetest"
)

// TestRestoreElsewhere: a server with a password file and files in a place of their own is restored beside them, as the drill of docs/operating.md does,
// and the new configuration names nothing of the old server.
func TestRestoreElsewhere(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := address.User.Password()
	if password == "" {
		password = "unused" // the test server asks for none
	}
	address.User = url.User(address.User.Username())

	directory := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, file := write("secret.key", otherKey), write("inbox.toml", strings.Join([]string{
		`public_url = "http://localhost:8080"`,
		`database_url = "` + address.String() + `"`,
		`database_password_file = "` + write("database.password", password) + `"`,
		`blob_url = "file://` + filepath.Join(directory, "files") + `"`,
		`data_dir = "` + filepath.Join(directory, "data") + `"`,
		`secret_key_file = "` + filepath.Join(directory, "secret.key") + `"`,
		"[federation]\nallow_private = true\n[[agents]]\nname = \"echo\"\nkind = \"echo\"\n",
	}, "\n"))
	config, err := inbox.LoadConfig(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := inbox.OpenOperator(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := opened.Tokens.Create(t.Context(), "ann", ""); err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	backups := filepath.Join(directory, "backups")
	if _, err := inbox.Backup(t.Context(), config, inbox.BackupOptions{Directory: backups}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}

	drill := inbox.RestoreOptions{
		Directory: backups, ConfigFile: filepath.Join(directory, "drill", "inbox.toml"),
		DatabaseURL: "sqlite", DataDir: filepath.Join(directory, "drill", "data"), BlobURL: "file",
	}
	if _, err := inbox.Restore(t.Context(), drill); err != nil {
		t.Fatal(err)
	}
	restored, err := inbox.LoadConfig(drill.ConfigFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	if restored.DatabaseURL != "sqlite" || restored.DatabasePasswordFile != "" || restored.BlobURL != "file" || restored.DataDir != drill.DataDir {
		t.Errorf("the drill uses %s with the password of %q, files in %s, data in %s", restored.DatabaseURL, restored.DatabasePasswordFile, restored.BlobURL, restored.DataDir)
	}

	if _, err := inbox.Restore(t.Context(), drill); err == nil || !strings.Contains(err.Error(), "blob_url") {
		t.Errorf("a configuration that exists: %v", err)
	}
}

// TestMoveWithoutFile: without a configuration file the operator is told the variable: a file with database_url alone would need public_url, too.
func TestMoveWithoutFile(t *testing.T) {
	t.Parallel()
	environ := []string{"INBOX_DATA_DIR=" + t.TempDir()}
	config, err := inbox.LoadConfig("", environ)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := inbox.OpenOperator(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := opened.Tokens.Create(t.Context(), "ann", ""); err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}

	report, err := inbox.MoveDatabase(t.Context(), config, inbox.MoveOptions{To: storetest.EmptyPostgres(t), Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	name, address, _ := strings.Cut(report.Line, "=")
	if name != "INBOX_DATABASE_URL" || address != report.To || report.Written != "" {
		t.Fatalf("the operator writes %q (%s), into %q", report.Line, report.Problem, report.Written)
	}
}
