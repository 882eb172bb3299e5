package config

import (
	"strings"
	"testing"
)

func TestClientToolsSayHowTheyRun(t *testing.T) {
	const table = aModel + "[[agents.client_tools]]\nname = \"push\"\ndescription = \"Pushes.\"\n"
	got := load(t, table+"duplicate_policy = \"once\"\ncompletion_signal = \"progress\"\ncapability_scope = \"control_plane\"\n").Agents[0].ClientTools[0]
	if got.Duplicates() != "once" || got.CompletionSignal != "progress" || got.CapabilityScope != controlPlane || got.Environment != runtimeLocal {
		t.Errorf("%+v", got)
	}
	if plain := load(t, table+"at_most_once = true\n").Agents[0].ClientTools[0]; plain.Duplicates() != "at_most_once" || plain.CapabilityScope != runtimeLocal {
		t.Errorf("%+v", plain)
	}
	for lines, want := range map[string]string{
		"duplicate_policy = \"twice\"":                                                "duplicate_policy",
		"at_most_once = true\nduplicate_policy = \"repeatable\"":                      "at_most_once is true",
		"completion_signal = \"done\"":                                                "completion_signal",
		"capability_scope = \"everywhere\"":                                           "capability_scope",
		"environment = \"moon\"":                                                      "environment",
		"parameter_bindings = '[1]'":                                                  "parameter_bindings",
		"parameter_defaults = 'x'":                                                    "parameter_defaults",
		"[[agents.client_tools]]\nname = \"client__push\"\ndescription = \"Pushes.\"": "would also be the name that models use for client/push",
		"asker = true\nenvironment = \"control_plane\"":                               "belongs to the control plane",
	} {
		if _, err := Load(write(t, table+lines+"\n"), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", lines, err, want)
		}
	}
}
