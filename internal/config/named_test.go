package config_test

import (
	"slices"
	"testing"

	"inbox/internal/config"
)

// TestSetTop: a key at the top is written or replaced, and nothing else changes.
func TestSetTop(t *testing.T) {
	const url = "postgres://inbox:a#b@db.example/inbox"
	for name, c := range map[string]struct{ before, after string }{
		"new":     {"# The server.\n\ndomain = \"a.example\"\n[http]\nlisten = \":1\"\n", "# The server.\n\ndatabase_url = \"" + url + "\"\ndomain = \"a.example\"\n[http]\nlisten = \":1\"\n"},
		"there":   {"database_url = \"sqlite\" # a file\ndomain = \"a.example\"\n", "database_url = \"" + url + "\" # a file\ndomain = \"a.example\"\n"},
		"windows": {"database_url = 'sqlite#'\r\n", "database_url = \"" + url + "\"\r\n"},
		"empty":   {"", "database_url = \"" + url + "\"\n"},
		"table":   {"[http]\nlisten = \":1\"\n", "database_url = \"" + url + "\"\n[http]\nlisten = \":1\"\n"},
	} {
		if got, err := config.SetTop("inbox.toml", c.before, "database_url", url); err != nil || got != c.after {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.after)
		}
	}

	for name, document := range map[string]string{"several lines": "database_url = \"\"\"\nsqlite\"\"\"\n", "no TOML": "database_url = \n"} {
		if got, err := config.SetTop("inbox.toml", document, "database_url", url); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestUnset: a key goes with its line, one of the same name in another table stays, and one that shares its lines is refused.
func TestUnset(t *testing.T) {
	const key = "database_password_file"
	for name, c := range map[string]struct{ before, after string }{
		"there":   {"# The server.\n" + key + " = \"/p\" # a secret\ndomain = \"a.example\"\n", "# The server.\ndomain = \"a.example\"\n"},
		"missing": {"domain = \"a.example\"\n[x]\n" + key + " = \"/p\"\n", "domain = \"a.example\"\n[x]\n" + key + " = \"/p\"\n"},
		"windows": {"a = 1\r\n" + key + " = \"/p\"\r\nb = 2\r\n", "a = 1\r\nb = 2\r\n"},
	} {
		if got, err := config.Unset("inbox.toml", c.before, key); err != nil || got != c.after {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.after)
		}
	}
	if got, err := config.Unset("inbox.toml", "a = 1\n[blob]\n# who\na = \"x\" # y\n[blog]\na = 2\n", "blob.a"); err != nil || got != "a = 1\n[blob]\n# who\n[blog]\na = 2\n" {
		t.Errorf("in a table: %q, %v", got, err)
	}
	for name, document := range map[string]string{"several lines": key + " = \"\"\"\n/p\"\"\"\n", "no TOML": key + " = \n"} {
		if got, err := config.Unset("inbox.toml", document, key); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestNamedFiles: files of tables and of lists of tables are found, the secret key is not among them.
func TestNamedFiles(t *testing.T) {
	settings := config.Default()
	settings.SecretKeyFile, settings.HTTP.CertFile = "/k", "/cert.pem"
	settings.Agents = []config.Agent{{Webhook: config.Webhook{SecretFile: "/hook.secret"}}}
	if got := settings.NamedFiles(); !slices.Equal(got, []string{"/cert.pem", "/hook.secret"}) {
		t.Errorf("%v", got)
	}
}
