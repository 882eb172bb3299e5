package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRetention: an agent has the times of the server but for those that it writes, 0s among them, and days are times.
func TestRetention(t *testing.T) {
	const head = "public_url = \"https://inbox.example\"\n"
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
		"no time":       {text: "[retention]\naudit = \"d\"\n", problem: "retention.audit"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "inbox.toml")
			top, agent, _ := strings.Cut(c.text, "[agents.retention]")
			if agent != "" {
				agent = "[agents.retention]" + agent
			}
			text := head + top + "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n" + agent
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
