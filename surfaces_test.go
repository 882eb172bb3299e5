package inbox

import (
	"testing"

	"inbox/adapters/chat"
	"inbox/internal/config"
)

// Askers execute the tools that the operator left to them, and none whose name looks alike.
func TestClientToolsAreToldApartByTheirWholeName(t *testing.T) {
	kind := clientToolKinds([]config.Agent{{Name: "Helper", ClientTools: []config.ClientTool{{Name: "a-b", Asker: true}, {Name: "a__b"}, {Name: "c"}}}})
	for name, want := range map[string]string{
		"client/a-b": chat.ToolOfAsker, "client/a__b": chat.ToolOfProgram, "client/c": chat.ToolOfProgram, "": chat.ToolOfAsker,
		"client__a__b": "", "client__c": "", "a-b": "", "client/A-B": "", "client/a_b": "",
	} {
		if got := kind("helper", name); got != want {
			t.Errorf("%q is executed by %q, want %q", name, got, want)
		}
	}
}
