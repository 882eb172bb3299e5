package config

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNamesForModelsAreRefused: no setting that takes canonical names accepts the name for models, and the error says which name to write. Names
// that contain "__" after a slash are canonical names.
func TestNamesForModelsAreRefused(t *testing.T) {
	const server = "[[agents.mcp]]\nname = \"git-hub\"\ncommand = \"true\"\n[[agents.mcp]]\nname = \"my__notes\"\ncommand = \"true\"\n"
	ruled := strings.Replace(aModel, "kind =", "access = \"public\"\nkind =", 1)
	for lines, want := range map[string]string{
		"[agents.llm.actions]\npreview = [\"notes__add_note\"]":                                      `agents[0].llm.actions.preview[0]: "notes__add_note" is a tool's name for models, which matches no tool here; write "notes/add_note"`,
		"[agents.llm.actions]\nforbidden = [\"a/b\", \"git-hub__*\"]":                                `forbidden[1]: "git-hub__*" is a tool's name for models, which matches no tool here; write "git-hub/*"`,
		"[agents.llm.actions]\ndirect = [\"my__notes__add\"]":                                        `write "my__notes/add"`,
		"[agents.llm.tool_policy]\ndeny = [\"client__look\"]":                                        `tool_policy.deny[0]: "client__look" is a tool's name for models, which matches no tool here; write "client/look"`,
		"[[agents.llm.budgets.tools]]\nname = \"notes__add\"\ncalls = 1":                             `budgets.tools[0].name: "notes__add" is`,
		"[[agents.rules]]\neffect = \"deny\"\npurposes = [\"tool:notes__a\"]":                        `rules[0].purposes[0]: "tool:notes__a" is a tool's name for models, which matches no tool here; write "tool:notes/a"`,
		"[[agents.llm.tool_call_rules]]\nafter_tool = \"notes__a\"\nrequire_one_of = [\"notes__b\"]": `tool_call_rules[0].require_one_of[0]: "notes__b" is`,
	} {
		if _, err := Load(write(t, ruled+lines+"\n"+server), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", lines, err, want)
		}
	}
	load(t, ruled+"[agents.llm.actions]\npreview = [\"notes/get__user\", \"my__notes/add\", \"category:my__category\", \"ask_agent\"]\n"+
		server+"preview = [\"get__user\", \"my__notes__add\"]\n")
}

// TestSettingsThatMatchNoToolAreFound: each is named with the tool that was meant, except those that may be about a tool of a server that is away.
func TestSettingsThatMatchNoToolAreFound(t *testing.T) {
	ruled := strings.Replace(aModel, "kind =", "access = \"public\"\nkind =", 1)
	agent := load(t, ruled+`agents = ["@a@b.example"]
[agents.llm.actions]
direct = ["notes/l*", "ask_agent", "category:write", "client/look"]
preview = ["add_note", "notes/addNote", "notes/x*", "away/*", "[ab]way/x", "nots/add_note"]
[agents.llm.tool_policy]
deny = ["notes/*", "notes/list"]
[[agents.llm.budgets.tools]]
name = "look"
calls = 1
[[agents.llm.tool_call_rules]]
after_tool = "notes/add"
require_one_of = ["notes/add_note"]
[[agents.rules]]
effect = "deny"
purposes = ["tool:notes/addnote", "message", "tool:notes/list"]
[[agents.client_tools]]
name = "look"
description = "Looks."
`).Agents[0]

	want := []UnmatchedTool{
		{"agents[helper].rules[0].purposes", `"tool:notes/addnote" matches no tool; settings take the name tool:notes/add_note`},
		{"agents[helper].llm.actions.preview", `"add_note" matches no tool; settings take the name notes/add_note`},
		{"agents[helper].llm.actions.preview", `"notes/addNote" matches no tool; settings take the name notes/add_note`},
		{"agents[helper].llm.actions.preview", `"notes/x*" matches no tool`},
		{"agents[helper].llm.actions.preview", `"nots/add_note" matches no tool`},
		{"agents[helper].llm.tool_policy.deny", `"notes/*" matches no tool`},
		{"agents[helper].llm.budgets.tools[0].name", `"look" matches no tool; settings take the name client/look`},
		{"agents[helper].llm.tool_call_rules[0].after_tool", `"notes/add" matches no tool`},
	}
	served := map[string]string{"notes/add_note": "notes__add_note", "notes/list": "notes__list"}
	if diff := cmp.Diff(want, agent.UnmatchedTools(served, []string{"away"})); diff != "" {
		t.Error(diff)
	}
	if all := agent.UnmatchedTools(served, nil); len(all) != len(want)+2 {
		t.Errorf("without a server that is away: %v", all)
	}
}

// TestToolsThatNeedApprovalAreNotClosed: they are offered to every sender, so the model sees them.
func TestToolsThatNeedApprovalAreNotClosed(t *testing.T) {
	const tools = "[[agents.mcp]]\nname = \"notes\"\ncommand = \"true\"\n[[agents.mcp]]\nname = \"mail\"\ncommand = \"true\"\n%" +
		"[[agents.client_tools]]\nname = \"look\"\ndescription = \"Looks.\"\n"
	for lines, want := range map[string][]string{
		"% %":                       {"client/look", "notes/*", "mail/*"},
		"%preview = [\"send\"]\n%":  {"client/look", "notes/*"},
		"% %action = \"preview\"\n": {"notes/*", "mail/*"},
		"[agents.llm.actions]\npreview = [\"notes/add\", \"client/l*\"]\n% %": {"mail/*"},
		"[agents.llm.actions]\nforbidden = [\"notes/add\"]\n% %":              {"client/look", "notes/*", "mail/*"},
	} {
		part := strings.Split(lines, "%")
		text := aModel + part[0] + strings.Replace(tools, "%", strings.TrimLeft(part[1], " "), 1) + part[2]
		if closed := load(t, text).Agents[0].ClosedTools(); !slices.Equal(closed, want) {
			t.Errorf("%q: %v, want %v", lines, closed, want)
		}
	}
}

// TestExamplesOfAgentsWithToolsLoad: the first example of each guide is a whole agent, and opens what the guide says.
func TestExamplesOfAgentsWithToolsLoad(t *testing.T) {
	for _, guide := range []string{"mcp-tools.md", "client-tools.md"} {
		text, err := os.ReadFile("../../docs/agents/" + guide)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "```toml\n")
		example, _, _ := strings.Cut(rest, "```")
		loaded, err := Load(write(t, "public_url = \"https://inbox.example\"\n"+example), nil)
		if err != nil {
			t.Errorf("%s: %v", guide, err)
			continue
		}
		if closed := loaded.Agents[0].ClosedTools(); len(closed) > 0 {
			t.Errorf("%s: no rule opens %v", guide, closed)
		}
	}
}
