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

// TestNamedFiles: files of tables and of lists of tables are found, the secret key is not among them.
func TestNamedFiles(t *testing.T) {
	settings := config.Default()
	settings.SecretKeyFile, settings.HTTP.CertFile = "/k", "/cert.pem"
	settings.Agents = []config.Agent{{Webhook: config.Webhook{SecretFile: "/hook.secret"}}}
	if got := settings.NamedFiles(); !slices.Equal(got, []string{"/cert.pem", "/hook.secret"}) {
		t.Errorf("%v", got)
	}
}
