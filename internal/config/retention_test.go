package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// retentionHead begins the files of these tests.
const retentionHead = "public_url = \"https://inbox.example\"\n"

// TestRetention: an agent has the times of the server but for those that it writes, 0s among them, and days are times.
func TestRetention(t *testing.T) {
	for name, c := range map[string]struct {
		text, problem string
		want          AgentRetention
	}{
		"inherited": {text: "[retention]\nmessages = \"90d\"\nsteps = \"12h\"\n", want: AgentRetention{Messages: 90 * 24 * time.Hour, Steps: 12 * time.Hour}},
		"own": {
			text: "[retention]\nmessages = \"90d\"\nfiles = \"1d\"\n[agents.retention]\nmessages = \"0s\"\nfiles = \"30m\"\n",
			want: AgentRetention{Files: 30 * time.Minute},
		},
		"records":       {text: "[retention]\nmessages = \"1d\"\nrecords = \"30d\"\n", want: AgentRetention{Messages: 24 * time.Hour, Records: 30 * 24 * time.Hour}},
		"short records": {text: "[retention]\nmessages = \"1d\"\nrecords = \"29d\"\n", problem: "retention.records"},
		"rows first":    {text: "[retention]\nmessages = \"60d\"\n[agents.retention]\nrecords = \"40d\"\n", problem: "agents[0].retention.records"},
		"no words":      {text: "[retention]\nrecords = \"40d\"\n", problem: "retention.records"},
		"too short":     {text: "[retention]\naudit = \"59s\"\n", problem: "retention.audit"},
		"short ceiling": {text: "[retention]\noperator_mail = \"59s\"\n", problem: "retention.operator_mail"},
		"no time":       {text: "[retention]\naudit = \"d\"\n", problem: "retention.audit"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "inbox.toml")
			top, agent, _ := strings.Cut(c.text, "[agents.retention]")
			if agent != "" {
				agent = "[agents.retention]" + agent
			}
			text := retentionHead + top + "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n" + agent
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}

			settings, err := Load(file, nil)
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Fatalf("%v; want a problem with %s", err, c.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := settings.Agents[0].Retention; got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestCeilings: what is not written has its default, 0s is for ever, and agents have no ceilings of their own.
func TestCeilings(t *testing.T) {
	settings, err := LoadText("inbox.toml", retentionHead+"[retention]\nmail_reports = \"0s\"\ntools_ceiling = \"60d\"\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default().Retention
	want.MailReports, want.ToolsCeiling = 0, 60*24*time.Hour
	if got := settings.Retention; got != want || got.AuditCeiling != 90*24*time.Hour {
		t.Errorf("%+v, want %+v", got, want)
	}

	agent := "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n[agents.retention]\naudit_ceiling = \"1d\"\n"
	if _, err := LoadText("inbox.toml", retentionHead+agent, nil); err == nil || !strings.Contains(err.Error(), "audit_ceiling") {
		t.Errorf("a ceiling of an agent: %v", err)
	}
}
