package config

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const editedFile = `# Ours.
public_url = "https://agents.example"   # with a remark

# The first one.
[[agents]]
name = "first"
kind = "webhook"
summary = """
[[agents]]
name = "no table" \"""
"""
# about the table below
[agents.webhook]
url = "https://hooks.example/"
secret = "0123456789"

[http]
listen = "127.0.0.1:0"

[[agents]]
name = "second"
kind = "echo"

[[agents.rules]]
effect = "allow"
address = "*@example.org"

# The end.
`

// TestRemoveAgentKeepsTheRest: what goes is the table with those inside of it, and nothing else.
func TestRemoveAgentKeepsTheRest(t *testing.T) {
	got, err := RemoveAgent("inbox.toml", editedFile, nil, "FIRST", "")
	if err != nil {
		t.Fatal(err)
	}
	from, to := strings.Index(editedFile, "[[agents]]\nname = \"first\""), strings.Index(editedFile, "# about")
	want := strings.Replace(editedFile[:from]+editedFile[to:], "[agents.webhook]\nurl = \"https://hooks.example/\"\nsecret = \"0123456789\"\n", "", 1)
	if got != want {
		t.Errorf("it became\n%s\nwant\n%s", got, want)
	}

	if got, err = RemoveAgent("inbox.toml", editedFile, nil, "second", ""); err != nil || !strings.HasSuffix(got, "listen = \"127.0.0.1:0\"\n\n# The end.\n") {
		t.Errorf("%v: it became\n%s", err, got)
	}
}

// TestEditsThatAreRefused: the error has the line of what is in the way, and what to do.
func TestEditsThatAreRefused(t *testing.T) {
	add := func(document, name string) error {
		_, err := AddAgent("inbox.toml", document, nil, AgentTable{Name: name, Kind: "echo"})
		return err
	}
	remove := func(document, name string) error {
		_, err := RemoveAgent("inbox.toml", document, nil, name, "")
		return err
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a name that is taken":   {add(editedFile, "Second"), `inbox.toml:20: agents[1]: "Second" is there already; write another name`},
		"a list of tables":       {add("domain = \"a.example\"\nagents = [{name = \"x\", kind = \"echo\"}]\n", "y"), "inbox.toml:2: agents: the agents are written as one list; write each"},
		"no such agent":          {remove(editedFile, "third"), `inbox.toml: agents: there is no agent "third"; inbox agents list`},
		"an agent of a list":     {remove("agents = [{name = \"x\", kind = \"echo\"}]", "x"), "inbox.toml:1: agents: the agents are written as one list"},
		"what is no TOML":        {add("domain = \n", "x"), "inbox.toml:1: "},
		"no TOML to take out of": {remove("\n]", "x"), "inbox.toml:2: "},
	} {
		var problem *Problem
		if !errors.As(test.err, &problem) || !strings.HasPrefix(test.err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, test.err, test.want)
		}
	}
}

// TestAgentTablesLoad: each kind that is written is one that the server reads.
func TestAgentTablesLoad(t *testing.T) {
	for _, table := range []AgentTable{
		{Kind: "echo"}, {Kind: "pull", Access: "verified", Summary: "Says \"hello\"\x7f\n"},
		{Kind: "webhook", Backend: "http://127.0.0.1:9000/"}, {Kind: "llm", Model: "m", Provider: "anthropic"},
		{Kind: "command", Backend: `/bin/\cat`}, {Kind: "remote", Backend: "https://agents.example/card.json"},
	} {
		table.Name = "added"
		document, err := AddAgent("inbox.toml", "", nil, table)
		if err != nil {
			t.Fatal(err)
		}
		if table.Kind == "webhook" {
			document += "secret = \"0123456789\"\n"
		}
		settings, err := LoadText("inbox.toml", "public_url = \"https://agents.example\"\n"+document, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", table.Kind, err, document)
		}
		if agent := settings.Agents[0]; agent.Name != "added" || agent.Kind != table.Kind || agent.Summary != table.Summary || agent.Command.Program != map[bool]string{true: table.Backend}[table.Kind == "command"] {
			t.Errorf("%s: %+v", table.Kind, agent)
		}
	}
}

// checkRoundTrip adds an agent and takes it out again. The file has to load before, in between and afterwards.
func checkRoundTrip(t interface {
	Helper()
	Fatalf(format string, arguments ...any)
}, document string,
) {
	t.Helper()
	settings, err := LoadText("inbox.toml", document, nil)
	if err != nil {
		return // no file of a server
	}
	for _, agent := range settings.Agents {
		if strings.EqualFold(agent.Name, "added-by-test") {
			return
		}
	}

	table := AgentTable{Name: "added-by-test", Kind: "command", Backend: "/bin/cat", Access: "public"}
	added, err := AddAgent("inbox.toml", document, nil, table)
	if err != nil {
		if strings.Contains(err.Error(), "written as one list") {
			return
		}
		t.Fatalf("add to %q: %v", document, err)
	}
	if _, err := LoadText("inbox.toml", added, nil); err != nil {
		t.Fatalf("%q became %q: %v", document, added, err)
	}

	removed, err := RemoveAgent("inbox.toml", added, nil, table.Name, table.Domain)
	if err != nil {
		t.Fatalf("remove from %q: %v", added, err)
	}
	if removed != document {
		t.Fatalf("%q became %q", document, removed)
	}
}

// TestAddAndRemoveAreInverse: a file that loads is the same to the byte after an agent was added and removed.
func TestAddAndRemoveAreInverse(t *testing.T) {
	pieces := []string{
		"domain = \"agents.example\"", "data_dir = '''a\n[[agents]]\n'''", "data_dir = \"\"\"\\\"\"\" # \"\"\"\"\"",
		"", "", "# a remark", "[http]", "listen = \"127.0.0.1:0\"", "[[agents]]\nname = \"one\"\nkind = \"echo\"", "[[agents]]\nname = \"two\"\nkind = \"command\"\n[agents.command]\nprogram = \"x\"\narguments = [\n  \"]\", # [\n]",
		"agents = []", "[[agents.rules]]\neffect = \"allow\"", " [ agents . history ] ", "window = 9", "[[trust]]\nissuer = \"example.org\"", "\ufeff", "\t",
	}
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "lines")
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end of lines")
		lines = append([]string{"public_url = \"https://agents.example\" # x"}, lines...)
		document := strings.ReplaceAll(strings.Join(lines, "\n"), "\n", end) + rapid.SampledFrom([]string{"", end, "\n"}).Draw(t, "end")
		checkRoundTrip(t, document)
	})
	checkRoundTrip(t, editedFile)
	checkRoundTrip(t, strings.TrimSuffix(editedFile, "\n"))
}

func FuzzEditAgents(f *testing.F) {
	f.Add(editedFile)
	f.Add("public_url = \"https://agents.example\"\r\n[[agents]]\r\nname='x'\r\nkind='echo'")
	f.Add("data_dir = \"\"\"\n\\\"\"\"\"\"\"\n[agents.llm]")
	f.Fuzz(func(t *testing.T, document string) { checkRoundTrip(t, document) })
}

func TestAgentsThatVariablesNumberKeepTheirNumbers(t *testing.T) {
	const document = "[[agents]]\nname = \"shop\"\nkind = \"echo\"\n\n[[agents]]\nname = \"help\"\nkind = \"echo\"\n"
	add := func(environ ...string) error {
		_, err := AddAgent("inbox.toml", document, environ, AgentTable{Name: "third", Kind: "echo"})
		return err
	}
	remove := func(name string, environ ...string) error {
		_, err := RemoveAgent("inbox.toml", document, environ, name, "")
		return err
	}

	for name, c := range map[string]struct {
		err     error
		refused string
	}{
		"the agent that a variable sets": {remove("shop", "INBOX_AGENTS_0_ACCESS=public"), "INBOX_AGENTS_0_ACCESS"},
		"one before it":                  {remove("shop", "INBOX_AGENTS_1_WEBHOOK_SECRET=x"), "INBOX_AGENTS_1_WEBHOOK_SECRET"},
		"one behind it":                  {remove("help", "INBOX_AGENTS_0_ACCESS=public"), ""},
		"a new one behind it":            {add("INBOX_AGENTS_1_ACCESS=public", "INBOX_AGENTS_0_RULES_5_EFFECT=deny"), ""},
		"a new one in its place":         {add("INBOX_AGENTS_2_NAME=variable"), "INBOX_AGENTS_2_NAME"},
		"an empty variable":              {remove("shop", "INBOX_AGENTS_0_ACCESS="), ""},
		"a variable of another list":     {remove("shop", "INBOX_BRIDGES_0_NAME=x"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			problem, is := errors.AsType[*Problem](c.err)
			switch {
			case c.refused == "" && c.err != nil:
				t.Error(c.err)
			case c.refused != "" && (!is || problem.Place != c.refused || problem.Remedy == ""):
				t.Errorf("%v, want a refusal that names %s", c.err, c.refused)
			}
		})
	}
}
