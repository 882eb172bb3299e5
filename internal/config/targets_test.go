package config

import (
	"strings"
	"testing"
)

const targetAgents = `public_url = "https://agents.example"
[[agents]]
name = "echo"
kind = "echo"
[[agents]]
name = "workers"
kind = "pull"
`

func TestTargets(t *testing.T) {
	config, err := Load(write(t, targetAgents+`
[[targets]]
id = "local"
agent = "Echo"
metadata = ["region=eu"]
[[targets]]
id = "pool"
kind = "pull"
agent = "workers"
capabilities = ["gpu", "linux"]
resource_classes = ["accelerated"]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Targets) != 2 || config.Targets[0].Kind != "agent" || config.Targets[1].Capabilities[1] != "linux" {
		t.Errorf("targets = %+v", config.Targets)
	}
}

func TestRefusedTargets(t *testing.T) {
	for name, test := range map[string]struct{ table, want string }{
		"no id":            {`agent = "echo"`, "targets[0].id"},
		"no agent":         {`id = "a"`, "targets[0].agent"},
		"unknown agent":    {"id = \"a\"\nagent = \"nobody\"", "there is no agent"},
		"unknown kind":     {"id = \"a\"\nagent = \"echo\"\nkind = \"cloud\"", "targets[0].kind"},
		"agent of no pool": {"id = \"a\"\nagent = \"echo\"\nkind = \"pull\"", "needs one of kind"},
		"agent of no peer": {"id = \"a\"\nagent = \"echo\"\nkind = \"a2a\"", "needs one of kind"},
		"blank capability": {"id = \"a\"\nagent = \"echo\"\ncapabilities = [\"a b\"]", "targets[0].capabilities[0]"},
		"bare metadata":    {"id = \"a\"\nagent = \"echo\"\nmetadata = [\"x\"]", "targets[0].metadata[0]"},
		"twice":            {"id = \"a\"\nagent = \"echo\"\n[[targets]]\nid = \"a\"\nagent = \"echo\"", "is a duplicate"},
	} {
		if _, err := Load(write(t, targetAgents+"[[targets]]\n"+test.table+"\n"), nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
