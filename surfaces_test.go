package inbox

import (
	"net/url"
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

// Webhooks at hosts of the operator, and with private addresses allowed those on this machine, get their credentials without a question.
func TestWebhookHostsThatNeedNotConfirm(t *testing.T) {
	for address, want := range map[string]struct{ public, private bool }{
		"https://hooks.internal/h": {true, true}, "http://HOOKS.internal/h": {true, true}, "https://hooks.internal:443/h": {true, true},
		"https://hooks.internal:8443/h": {false, true}, "http://hooks.internal:9000/h": {false, true},
		"https://exact.internal:8443/h": {true, true}, "https://exact.internal/h": {false, false}, "https://exact.internal:9000/h": {false, false},
		"https://[fd00::1]/h": {true, true}, "http://[fd00::1]:9000/h": {false, true}, "https://[fd00::2]/h": {false, false},
		"http://127.0.0.1:9000/h": {false, true}, "http://localhost:9000/h": {false, true}, "http://[::1]:9000/h": {false, true},
		"http://[::ffff:127.0.0.1]/h": {false, true}, "http://127.1/h": {false, false}, "http://localhost.example.com/h": {false, false},
		"http://10.0.0.1/h": {false, false}, "https://other.internal/h": {false, false}, "https://hooks.internal.example.com/h": {false, false},
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		listed := []string{"Hooks.internal", "exact.internal:8443", "[fd00::1]"}
		for _, private := range []bool{false, true} {
			expected := map[bool]bool{false: want.public, true: want.private}[private]
			if got := newWebhookHosts(listed, private).named(u); got != expected {
				t.Errorf("%s with allow_private = %v: %v, want %v", address, private, got, expected)
			}
		}
	}
}
