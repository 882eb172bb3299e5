package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestBlankSecretsAreRefused: every setting of type Secret, in the file, in the environment and in a file of its own. New ones are found by
// reflection.
func TestBlankSecretsAreRefused(t *testing.T) {
	for _, text := range []string{" ", "      ", "\t\t", " \r\n", "\u00a0\u2003", "\u200b\ufeff"} {
		c := Default()
		for _, list := range []any{&c.Agents, &c.Connectors, &c.Peers, &c.Logins} { // one element of each list
			slice := reflect.ValueOf(list).Elem()
			slice.Set(reflect.MakeSlice(slice.Type(), 1, 1))
		}
		c.Agents[0].MCP = make([]MCP, 1)
		count := fillSecrets(reflect.ValueOf(c).Elem(), text)
		found := newProblems()
		c.validateSecrets(found)
		if len(found.found) != count || count < 15 {
			t.Errorf("%q: %d of %d secrets are refused:\n%v", text, len(found.found), count, found.err())
		}
	}
}

func fillSecrets(table reflect.Value, text string) (count int) {
	for i := range table.NumField() {
		field := table.Field(i)
		switch {
		case keyOf(table.Type().Field(i)) == "":
		case field.Type() == reflect.TypeFor[Secret]():
			field.SetString(text)
			count++
		case isTable(field.Type()):
			count += fillSecrets(field, text)
		case isTableList(field.Type()):
			for n := range field.Len() {
				count += fillSecrets(field.Index(n), text)
			}
		}
	}
	return count
}

func TestBlankSecretsHaveTheirPlace(t *testing.T) {
	directory := t.TempDir()
	file, secret := filepath.Join(directory, "inbox.toml"), filepath.Join(directory, "secret")
	if err := os.WriteFile(secret, []byte(" \t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const head = "public_url = \"https://agents.example\"\n[[agents]]\nname = \"a\"\nkind = \"webhook\"\n[agents.webhook]\nurl = \"http://127.0.0.1:9000/\"\n"
	for name, row := range map[string]struct {
		line    string
		environ []string
		want    string
	}{
		"in the file":    {`secret = "      "`, nil, "inbox.toml:7: agents[0].webhook.secret: is blank"},
		"tabs":           {`secret = "\t\t"`, nil, "inbox.toml:7: agents[0].webhook.secret: is blank"},
		"in its file":    {`secret_file = "` + secret + `"`, nil, "inbox.toml:7: agents[0].webhook.secret_file: " + secret + " is blank"},
		"in environment": {``, []string{"INBOX_AGENTS_0_WEBHOOK_SECRET=  "}, "INBOX_AGENTS_0_WEBHOOK_SECRET: agents[0].webhook.secret: is blank"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadText(file, head+row.line+"\n", row.environ)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}
