package config

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestApprovers(t *testing.T) {
	const agent = "public_url = \"https://inbox.example\"\n[[agents]]\nname = \"helper\"\nkind = \"echo\"\n"
	got := load(t, agent+"approvers = [\"@owner@social.example\", \"owner@example.org\"]\napprove_replies = \"unverified\"\n").Agents[0]
	if got.ApproveReplies != "unverified" || !slices.Equal(got.Approvers, []string{"@owner@social.example", "owner@example.org"}) {
		t.Errorf("%+v", got)
	}
	if got := load(t, agent).Agents[0]; got.ApproveReplies != "never" || got.Approvers != nil {
		t.Errorf("without the keys: %+v", got)
	}
	many := strings.Repeat("\"a@example.org\", ", 21)
	for lines, want := range map[string]string{
		`approve_replies = "allways"`:                                   "did you mean \"always\"?",
		`approvers = ["owner"]`:                                         `"owner" is not an address; write "@owner@social.example" or "owner@example.org"`,
		`approvers = ["Owner@example.org", "@owner@example.org"]`:       `"@owner@example.org" is written twice`,
		`approvers = ["@helper@inbox.example"]`:                         "is an address of this server",
		"approvers = [\"owner@example.org\"]\n[smtp]\nlisten = \"off\"": "is a mailbox, and email is off",
		"approvers = [" + many + "]":                                    "has 21 addresses; write at most 20",
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
