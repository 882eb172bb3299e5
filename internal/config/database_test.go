package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDatabasePasswordFile: the password of a file, with every character that an address cannot have, reaches the database and nothing that
// is printed.
func TestDatabasePasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("p@ss:/?#%word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded := func(address, file string) (*Config, error) {
		return Load("", []string{"INBOX_DATABASE_URL=" + address, "INBOX_DATABASE_PASSWORD_FILE=" + file})
	}

	for address, want := range map[string]string{
		"postgres://inbox@db/inbox":                            "postgres://inbox:p%40ss%3A%2F%3F%23%25word@db/inbox",
		"postgres://inbox@db1:5432,db2:5432/x?sslmode=disable": "postgres://inbox:p%40ss%3A%2F%3F%23%25word@db1:5432,db2:5432/x?sslmode=disable",
	} {
		settings, err := loaded(address, file)
		if err != nil {
			t.Fatal(err)
		}
		if got := settings.DatabaseURL.Reveal(); got != want {
			t.Errorf("the address is %s, want %s", got, want)
		}
		if shown := settings.DatabaseURL.String(); strings.Contains(shown, "word") {
			t.Errorf("the password is in %s", shown)
		}
	}

	for name, test := range map[string]struct{ address, file, want string }{
		"SQLite":     {"sqlite", file, "SQLite has no password"},
		"no user":    {"postgres://db/inbox", file, "no user"},
		"both":       {"postgres://inbox:x@db/inbox", file, "twice"},
		"no file":    {"postgres://inbox@db/inbox", file + ".missing", "no such file"},
		"directory":  {"postgres://inbox@db/inbox", filepath.Dir(file), "is not a file"},
		"no address": {"postgres://in box@%zz", file, "no user"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loaded(test.address, test.file); err == nil || !strings.Contains(err.Error(), "database_password_file") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestDatabaseSettings: a domain has the sessions and the demands of the whole server, and settings that cannot hold are refused.
func TestDatabaseSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inbox.toml")
	load := func(text string) (*Config, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(file, nil)
	}
	const domains = "domain = \"a.example\"\npublic_url = \"https://a.example\"\n%s[[domains]]\nname = \"b.example\"\n" +
		"[[agents]]\nname = \"x\"\nkind = \"echo\"\n[[agents]]\nname = \"y\"\nkind = \"echo\"\ndomain = \"b.example\"\n"

	settings, err := load(fmt.Sprintf(domains, "database_url = \"postgres://u@h/d\"\n[database]\nconnections = 40\nrequire_synchronous = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range append(settings.Hosted, settings) {
		if one.Database != (Database{Connections: 40, RequireSynchronous: true}) {
			t.Errorf("%s has %+v", one.Domain, one.Database)
		}
	}
	if settings, err = load(fmt.Sprintf(domains, "")); err != nil || settings.Database != (Database{Connections: 16}) {
		t.Errorf("without the table: %v", err)
	}

	for text, want := range map[string]string{
		"[database]\nconnections = 3\n":            "database.connections",
		"[database]\nconnections = 10001\n":        "database.connections",
		"[database]\nrequire_synchronous = true\n": "SQLite has no standby",
	} {
		if _, err := load(fmt.Sprintf(domains, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
