package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const shown = `domain = "agents.example"
public_url = "https://agents.example"
database_url = "postgres://inbox:hunter2@db.internal/inbox"

[http]
listen = "0.0.0.0:8443"
max_body_bytes = "20MiB"

[[agents]]
name = "helper"
kind = "webhook"

[agents.webhook]
url = "https://hooks.internal/agent"
secret = "hunter2-hunter2-hunter2"

[agents.history]
window = 30
`

// TestDocument: what is shown loads again to the same settings, and shows no secret.
func TestDocument(t *testing.T) {
	directory := t.TempDir()
	load := func(name, text string) *Config {
		t.Helper()
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		settings, err := Load(path, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		settings.File = ""
		return settings
	}

	first := load("first.toml", shown)
	for _, everything := range []bool{false, true} {
		document, err := first.Document(everything)
		if err != nil {
			t.Fatal(err)
		}

		text := string(document)
		if strings.Contains(text, "hunter2") {
			t.Errorf("a secret is shown:\n%s", text)
		}
		if strings.Contains(text, "turn_concurrency") != everything || !strings.Contains(text, `max_body_bytes = "20MiB"`) || !strings.Contains(text, "window = 30") {
			t.Errorf("everything %t:\n%s", everything, text)
		}

		text = strings.ReplaceAll(text, `"[redacted]"`, `"hunter2-hunter2-hunter2"`)
		again := load("again.toml", strings.ReplaceAll(text, ":xxxxx@", ":hunter2@"))
		if !reflect.DeepEqual(again, first) {
			t.Errorf("everything %t: other settings:\n%+v\n%+v\n%s", everything, again, first, text)
		}
	}
}
