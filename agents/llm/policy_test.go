package llm

import (
	"slices"
	"testing"
	"time"

	"inbox/agents/runtime/tool"
	"inbox/identity"
	"inbox/normalized"
)

func TestActionsByPatternAndCategory(t *testing.T) {
	var asked []Request
	tools := &toolbox{entries: []tool.Entry{
		declare("read_note", nil), declare("add_note", nil), declare("drop_note", nil), declare("send_mail", map[string]any{"category": "outside"}),
		declare("look", map[string]any{"category": "harmless"}),
	}}
	agent := newAgent(t, Options{Provider: listening(&asked), Tools: []Tools{tools}, Actions: Actions{
		Tools:      map[string]string{"*_note": "preview", "drop_*": "forbidden", "read_note": "direct"},
		Categories: map[string]string{"outside": "forbidden"},
	}})
	for name, want := range map[string]string{
		"read_note": tool.ActionDirect, "add_note": tool.ActionPreview, "drop_note": tool.ActionForbidden,
		"send_mail": tool.ActionForbidden, "look": tool.ActionDirect,
	} {
		j := &job{agent: agent, turn: question("actions")}
		declared, _ := tool.Declare(tools.entries)
		declaration, _ := declared.Get(name)
		if got := j.action(declaration); got != want {
			t.Errorf("%s is %s; want %s", name, got, want)
		}
	}
	if _, err := New(Options{Provider: agent.options.Provider, Model: "m", Actions: Actions{Tools: map[string]string{"[": "direct"}}}); err == nil {
		t.Error("a broken pattern is taken")
	}
}

func offered(request Request) []string {
	names := make([]string, len(request.Tools))
	for i := range request.Tools {
		names[i] = request.Tools[i].Name
	}
	return names
}

func TestToolPolicyHidesTools(t *testing.T) {
	entries := []tool.Entry{
		declare("look", map[string]any{"category": "reading"}), declare("write", map[string]any{"mutating": true}), declare("other", nil),
	}
	person := question("person")
	person.Message.Sender.Identities = []identity.Evidence{identity.Transport(identity.TransportProof{
		Addressed: identity.AddressedRequest,
		Domain:    "inbox.test", Subject: "mailto:ana@peer.test", Method: identity.MethodEmailDMARC, Assurance: identity.AssuranceDomain,
		Recipient: person.Message.Recipient, IssuedAt: time.Now(),
	})}
	behind := person
	behind.Message.RecipientCapabilities.AgentChain = &normalized.AgentChain{Hop: 1, MaxHops: 4}
	unproven := person
	unproven.Message.Sender.Identities = nil
	for name, test := range map[string]struct {
		policy                   map[string]any
		person, behind, unproven []string
	}{
		"no policy":  {nil, []string{"look", "write", "other"}, []string{"look", "write", "other"}, []string{"look", "write", "other"}},
		"deny list":  {map[string]any{"mode": "deny", "tools": []any{"other"}, "allow_write_tools": true}, []string{"look", "write"}, []string{"look", "write"}, []string{"look", "write"}},
		"allow list": {map[string]any{"mode": "allow", "categories": []any{"reading"}}, []string{"look"}, []string{"look"}, []string{"look"}},
		"writing is for people": {
			map[string]any{"mode": "deny", "allow_write_tools": false}, []string{"look", "write", "other"}, []string{"look", "other"}, []string{"look", "other"},
		},
		"unless it is named": {
			map[string]any{"allow_only": []any{"write", "look"}, "deny": []any{"look"}}, []string{"write"}, []string{"write"}, []string{"write"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []Request
			agent := newAgent(t, Options{Provider: listening(&asked), Tools: []Tools{&toolbox{entries: entries}}, ToolPolicy: test.policy})
			if _, _, err := fold(t.Context(), t, agent, person); err != nil {
				t.Fatal(err)
			}
			if _, _, err := fold(t.Context(), t, agent, behind); err != nil {
				t.Fatal(err)
			}
			if _, _, err := fold(t.Context(), t, agent, unproven); err != nil {
				t.Fatal(err)
			}
			for i, want := range [][]string{test.person, test.behind, test.unproven} {
				if got := offered(asked[i]); !slices.Equal(got, want) {
					t.Errorf("turn %d: the model was offered %v; want %v", i, got, want)
				}
			}
		})
	}
}
