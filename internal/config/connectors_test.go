package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const connectorTable = `public_url = "https://agents.example"
[[agents]]
name = "echo"
kind = "echo"
[[connectors]]
`

func TestConnectors(t *testing.T) {
	config, err := Load(write(t, connectorTable+"name = \"slack\"\nsecret = \"0123456789abcdef\"\nissuer = \"Slack.Example\"\nagents = [\"ECHO\"]\ncallback_url = \"http://127.0.0.1:9100/answers\"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if one := config.Connectors[0]; one.Issuer != "slack.example" || one.Method != platformMention || config.Bridges.MaxWait == 0 || len(config.Bridges.Retry) == 0 {
		t.Errorf("%+v, %+v", one, config.Bridges)
	}
}

func TestRefusedConnectors(t *testing.T) {
	for keys, want := range map[string]string{
		"name = \"Slack\"\nsecret = \"0123456789abcdef\"\nagents = [\"echo\"]":                                                      "is not a name",
		"name = \"slack\"\nagents = [\"echo\"]":                                                                                     "could not tell its messages from forged ones",
		"name = \"slack\"\nsecret = \"short\"\nagents = [\"echo\"]":                                                                 "too short",
		"name = \"slack\"\nsecret = \"0123456789abcdef\"":                                                                           "reaches nobody",
		"name = \"slack\"\nsecret = \"0123456789abcdef\"\nagents = [\"nobody\"]":                                                    "there is no agent",
		"name = \"slack\"\nissuer = \"a.example\"\nagents = [\"echo\"]\ncallback_url = \"https://a.example/\"":                      "could not be signed",
		"name = \"slack\"\nsecret = \"0123456789abcdef\"\nagents = [\"echo\"]\ncallback_url = \"https://a.example/\"\nbridge=\"x\"": "another",
	} {
		_, err := Load(write(t, connectorTable+keys+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", keys, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func TestExamplesOfConnectorsLoad(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "slack.secret")
	if err := os.WriteFile(secret, []byte("a long random text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../../docs/connectors.md", "../../docs/examples/connector-slack/README.md"} {
		guide, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(guide), "```toml\n")[1:]
		if len(blocks) == 0 {
			t.Errorf("%s has no examples", name)
		}
		for _, block := range blocks {
			example, _, _ := strings.Cut(block, "```")
			example = strings.ReplaceAll(example, "/etc/inbox/slack.secret", secret)
			if _, err := Load(write(t, example), nil); err != nil {
				t.Errorf("%v in\n%s", err, example)
			}
		}
	}
}
