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
		"postgres://inbox@/x?host=/run/postgresql":             "postgres://inbox:p%40ss%3A%2F%3F%23%25word@/x?host=/run/postgresql",
		"postgres://inbox@%2Frun%2Fpg/x":                       "postgres://inbox:p%40ss%3A%2F%3F%23%25word@/x?host=%2Frun%2Fpg&port=",
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

// TestHostsOfDatabase: addresses that libpq reads are read, and those that net/url reads stay as they are.
func TestHostsOfDatabase(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:p@a:5432,b:5433/d":              "postgres://u:p@a:5432,b:5433/d",
		"postgres://u:p@a:5432,b/d?sslmode=disable":   "postgres://u:p@/d?sslmode=disable&host=a,b&port=5432,",
		"postgres://a,b:5433":                         "postgres://a,b:5433",
		"postgresql://[::1]:5432,[fe80::1]/d":         "postgresql:///d?host=%3A%3A1,fe80%3A%3A1&port=5432,",
		"postgres://u@%2Frun%2Fpg:5433/d":             "postgres://u@/d?host=%2Frun%2Fpg&port=5433",
		"postgres://h:5432/d?user=me@server":          "postgres://h:5432/d?user=me@server",
		"postgres://u@/d?host=/run/postgresql":        "postgres://u@/d?host=/run/postgresql",
		"postgres://u@a:5432,b?application_name=x%20": "postgres://u@?application_name=x%20&host=a,b&port=5432,",
	} {
		settings, err := Load("", []string{"INBOX_DATABASE_URL=" + address})
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if got := settings.DatabaseURL.Reveal(); got != want {
			t.Errorf("%s became %s, want %s", address, got, want)
		}
	}

	for _, address := range []string{"postgres://u:p%@a/d", "postgres://u:p@a:5432,%zz/d", "postgres://u:12#3@h/d", "postgres://u:12/3@h/d", "postgres://u:12?3@h/d"} {
		if _, err := Load("", []string{"INBOX_DATABASE_URL=" + address}); err == nil || !strings.Contains(err.Error(), "percent-encode") {
			t.Errorf("%s: error %v", address, err)
		}
	}
}

// TestPasswordsStayHidden: however a password is written into an address, the address shows itself without it.
func TestPasswordsStayHidden(t *testing.T) {
	for _, address := range []SecretURL{
		"postgres://u:s3cret@h/d", "postgres://u@h/d?password=s3cret", "postgres://u@h/d?password=x;s3cret", "postgres://u@h/d?password=s3cret%zz",
		"postgres://u@h/d?pass%77ord=s3cret", "postgres://u:12#s3cret@h/d", "postgres://u:12/s3cret@h/d", "postgres://u:12?s3cret@h/d", "postgres://u:%s3cret@h/d",
	} {
		if shown := address.String(); strings.Contains(shown, "s3cret") {
			t.Errorf("%s shows itself as %s", address.Reveal(), shown)
		}
	}
	const open = "postgres://u@h:5432/d?user=me@server&application_name=my%20inbox"
	if shown := SecretURL(open).String(); shown != open {
		t.Errorf("%s shows itself as %s", open, shown)
	}
}
