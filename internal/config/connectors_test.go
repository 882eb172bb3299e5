package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		"name = \"slack\"\nsecret = \"0123456789abcdef\"":                                                                           "reaches no agent",
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

func TestApprovers(t *testing.T) {
	const agent = "public_url = \"https://inbox.example\"\n[[agents]]\nname = \"helper\"\nkind = \"echo\"\n"
	got := load(t, agent+"approvers = [\"@owner@social.example\", \"owner@example.org\"]\napprove_replies = \"unverified\"\n").Agents[0]
	if got.ApproveReplies != "unverified" || !slices.Equal(got.Approvers, []string{"@owner@social.example", "owner@example.org"}) {
		t.Errorf("%+v", got)
	}
	if got := load(t, agent).Agents[0]; got.ApproveReplies != "never" || got.Approvers != nil {
		t.Errorf("without the keys: %+v", got)
	}
	methods := func(address, list string) string {
		return fmt.Sprintf("approvers = [\"owner@example.org\"]\n[[agents.approver_methods]]\naddress = %q\nmethods = [%s]\n", address, list)
	}
	got = load(t, agent+methods("OWNER@example.org", `"email-dkim", "ap-object-proof"`)).Agents[0]
	if len(got.ApproverMethods) != 1 || got.ApproverMethods[0].Address != "owner@example.org" || !slices.Equal(got.ApproverMethods[0].Methods, []string{"email-dkim", "ap-object-proof"}) {
		t.Errorf("%+v", got.ApproverMethods)
	}
	got = load(t, agent+"aliases = [\"Support@They.example\", \"hilfe@bücher.example\"]\n").Agents[0]
	if want := []string{"support@they.example", "hilfe@xn--bcher-kva.example"}; !slices.Equal(got.Aliases, want) {
		t.Errorf("aliases %q; want %q", got.Aliases, want)
	}
	many := strings.Repeat("\"a@example.org\", ", 21)
	for lines, want := range map[string]string{
		`approve_replies = "allways"`:                                   "did you mean \"always\"?",
		`approvers = ["owner"]`:                                         `"owner" is not an address; write "@owner@social.example" or "owner@example.org"`,
		`approvers = ["Owner@example.org", "@owner@example.org"]`:       `"@owner@example.org" is written twice`,
		`approvers = ["@helper@inbox.example"]`:                         "is an address of this server",
		"approvers = [\"owner@example.org\"]\n[smtp]\nlisten = \"off\"": "is a mailbox, and email is off",
		methods("@eve@example.org", `"email-dmarc"`):                    `"@eve@example.org" is no approver of the agent; write one of approvers`,
		methods("owner@example.org", ""):                                "approver_methods[0].methods: is missing",
		methods("owner@example.org", `"a2a-jwt"`):                       `"a2a-jwt" is unknown; write email-dmarc, email-dkim, ap-http-signature, ap-object-proof`,
		methods("owner@example.org", `"email-dmrac"`):                   `did you mean "email-dmarc"?`,
		methods("owner@example.org", `"email-dmarc"`) + "[[agents.approver_methods]]\naddress = \"Owner@example.org\"\nmethods = [\"email-dkim\"]\n": "is written twice",
		`aliases = ["support"]`:                          `"support" is not a mail address; write one without a tag`,
		`aliases = ["support+x@they.example"]`:           "is not a mail address",
		`aliases = ["@support@they.example"]`:            "is not a mail address",
		`aliases = ["a@they.example", "A@they.example"]`: `"A@they.example" is an alias already`,
		`aliases = ["helper@inbox.example"]`:             "is the address of an agent",
		"aliases = [" + strings.Repeat(many, 3) + "]":    "has 63 addresses; write at most 50",
		"[mail]\ncatch_all = \"nobody\"":                 `there is no agent "nobody"; write the name of one of [[agents]]`,
		"approvers = [" + many + "]":                     "has 21 addresses; write at most 20",
	} {
		_, err := Load(write(t, agent+lines+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", lines, err, want)
		}
	}
}

func TestExamplesInTheGuideToApprovalsLoad(t *testing.T) {
	guide, err := os.ReadFile("../../docs/approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(guide), "```toml\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("the guide has no example")
	}
	for _, block := range blocks {
		example, _, _ := strings.Cut(block, "```")
		if _, err := Load(write(t, example), nil); err != nil {
			t.Errorf("%v in\n%s", err, example)
		}
	}
}

const aModel = "public_url = \"https://inbox.example\"\n[[agents]]\nname = \"helper\"\nkind = \"llm\"\n[agents.llm]\nmodel = \"m\"\n"

func TestModelSettings(t *testing.T) {
	if diff := cmp.Diff(defaultLLM(), func() LLM { l := load(t, aModel).Agents[0].LLM; l.Model = ""; return l }()); diff != "" {
		t.Errorf("defaults: %s", diff)
	}
	zero := 0.0
	got := load(t, aModel+`temperature = 0
streaming = false
wall_clock = "90s"
call_timeout = "1m"
attempts = 2
retry_base = "10ms"
retry_max = "1s"
agents = ["@weather@inbox.example", "@far@other.example"]
[agents.llm.price]
input = 3
output = 15.5
cache_read = 0.3
currency = "USD"
[agents.llm.actions]
preview = ["notes/*", "category:write"]
forbidden = ["shell/run"]
[agents.llm.tool_policy]
mode = "allow"
tools = ["notes/add_note"]
allow_write_tools = false
[agents.llm.compaction]
threshold = "64KiB"
keep_messages = 6
model = "small"
[agents.llm.budgets]
tool_calls = 5
tokens = 20000
cost = 0.5
[[agents.llm.budgets.tools]]
name = "notes/add_note"
calls = 2
[agents.llm.hooks]
url = "http://127.0.0.1:9000/hooks"
secret = "s"
mediator = true
timeout = "2s"
`).Agents[0].LLM
	want := LLM{
		Provider: "openai", Model: "m", MaxTurns: 12, MaxToolCalls: 40, Temperature: &zero, WallClock: 90 * time.Second,
		CallTimeout: time.Minute, IdleTimeout: 2 * time.Minute, Attempts: 2, RetryBase: 10 * time.Millisecond, RetryMax: time.Second,
		Agents:     []string{"@weather@inbox.example", "@far@other.example"},
		Price:      Price{Input: 3, Output: 15.5, CacheRead: 0.3, Currency: "USD"},
		Actions:    Actions{Preview: []string{"notes/*", "category:write"}, Forbidden: []string{"shell/run"}},
		ToolPolicy: ToolPolicy{Mode: "allow", Tools: []string{"notes/add_note"}},
		Compaction: Compaction{Enabled: true, Threshold: 64 << 10, KeepMessages: 6, ArchiveOver: 2 << 20, Model: "small"},
		Budgets:    Budgets{ToolCalls: 5, Tokens: 20_000, Cost: 0.5, Tools: []ToolBudget{{"notes/add_note", 2}}},
		Hooks:      Hooks{URL: "http://127.0.0.1:9000/hooks", Secret: "s", Mediator: true, Timeout: 2 * time.Second, OnFailure: "reject"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for lines, want := range map[string]string{
		"temperature = 3":                                                                  "3 is outside 0 to 2",
		"temperature = \"warm\"":                                                           "write a number",
		"wall_clock = \"10ms\"":                                                            "counts whole seconds",
		"attempts = 0":                                                                     "attempts",
		"retry_base = \"5s\"\nretry_max = \"1s\"":                                          "retry_max",
		"agents = [\"weather@inbox.example\"]":                                             "is not the address of an agent",
		"agents = [\"@a@b.example\", \"@a@b.example\"]":                                    "is a duplicate",
		"[agents.llm.price]\ninput = -1":                                                   "-1 is no price",
		"[agents.llm.actions]\ndirect = [\"a\"]\npreview = [\"a\"]":                        `"a" is in direct already`,
		"[agents.llm.actions]\nforbidden = [\"a[\"]":                                       "neither a tool nor a pattern",
		"[agents.llm.tool_policy]\nmode = \"alow\"":                                        `did you mean "allow"?`,
		"[agents.llm.compaction]\nthreshold = \"1KiB\"":                                    "threshold",
		"[agents.llm.compaction]\nthreshold = \"8MiB\"":                                    "archive_over",
		"[[agents.llm.tool_call_rules]]\nid = \"a\"":                                       "decides nothing",
		"[[agents.llm.tool_call_rules]]\nrequire_tool_use = true\ngate_completion = false": "is about the end of a run",
		"[[agents.llm.tool_call_rules]]\nrequire_tool_use = true\nmin_tool_calls = 0":      "min_tool_calls",
		"[agents.llm.budgets]\nturns = -1":                                                 "-1 is out of range",
		"[agents.llm.budgets]\nwall_clock = \"10ms\"":                                      "counts whole seconds",
		"[agents.llm.budgets]\ncost = -0.5":                                                "-0.5 is no cost",
		"[[agents.llm.budgets.tools]]\ncalls = 1":                                          "name",
		"[[agents.llm.budgets.tools]]\nname = \"a\"":                                       "calls",
		"max_turns = 3\n[agents.llm.budgets]\nturns = 3":                                   "is set twice",
		"max_tool_calls = 3\n[agents.llm.budgets]\ntool_calls = 3":                         "is set twice",
		"[agents.llm.hooks]\nsecret = \"s\"\nmediator = true":                              "is not a web address",
		"[agents.llm.hooks]\nurl = \"http://h/\"\nobserver = true":                         "forged",
		"[agents.llm.hooks]\nurl = \"http://h/\"\nsecret = \"s\"":                          "asked and told nothing",
		"[agents.llm.hooks]\non_failure = \"ignore\"\nmediator = true":                     "on_failure",
	} {
		_, err := Load(write(t, aModel+lines+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", lines, err, want)
		}
	}
}

func TestModelSettingsFromTheEnvironment(t *testing.T) {
	loaded, err := Load(write(t, aModel), []string{
		"INBOX_AGENTS_0_LLM_TEMPERATURE=0.5", "INBOX_AGENTS_0_LLM_PRICE_OUTPUT=1.25", "INBOX_AGENTS_0_LLM_AGENTS=@a@b.example,@c@d.example",
	})
	if err != nil {
		t.Fatal(err)
	}
	got := loaded.Agents[0].LLM
	if got.Temperature == nil || *got.Temperature != 0.5 || got.Price.Output != 1.25 || len(got.Agents) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestRepliesOfRules(t *testing.T) {
	const agent = "public_url = \"https://inbox.example\"\n[[agents]]\nname = \"helper\"\nkind = \"echo\"\naccess = \"public\"\n[[agents.rules]]\n"
	if got := load(t, agent+"effect = \"allow\"\naddress = \"@*@social.example\"\napprove_replies = \"always\"\n").Agents[0].Rules[0]; got.ApproveReplies != "always" {
		t.Errorf("%+v", got)
	}
	for lines, want := range map[string]string{
		"effect = \"allow\"\napprove_replies = \"often\"":                           "approve_replies",
		"effect = \"deny\"\napprove_replies = \"always\"":                           "admits no one to the agent",
		"effect = \"allow\"\npurposes = [\"tool:x\"]\napprove_replies = \"always\"": "admits no one to the agent",
	} {
		_, err := Load(write(t, agent+lines+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", lines, err, want)
		}
	}
}
