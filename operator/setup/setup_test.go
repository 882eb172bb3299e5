package setup_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"inbox"
	"inbox/operator/setup"
)

// TestSetupIsReadByTheServer: for each way in which mail leaves and each kind of agent, what is written is what the server reads, to the
// address; paths with odd characters, too.
func TestSetupIsReadByTheServer(t *testing.T) {
	for name, s := range map[string]setup.Setup{
		"mx":        {Mail: setup.MailDirect, Agent: setup.AgentTable{Kind: "echo"}},
		"smarthost": {Mail: setup.MailSmarthost, Smarthost: "smtps://u:p%40@relay.example:465", Agent: setup.AgentTable{Kind: "llm", Model: "m"}},
		"none":      {Mail: setup.MailNone, Agent: setup.AgentTable{Kind: "webhook", Backend: "http://127.0.0.1:1/"}, Hostname: "www.agents.example"},
		"pull":      {Mail: setup.MailDirect, Agent: setup.AgentTable{Kind: "pull"}, Email: "me@example.org"},
	} {
		s.Domain, s.Agent.Name, s.Program, s.User = "agents.example", "helper", "/usr/bin/inbox", "me"
		s.Directory = filepath.Join(t.TempDir(), `odd "%h" \ directory`)
		files, err := s.Write(nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		config, err := inbox.LoadConfig(s.ConfigPath(), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if config.Domain != s.Domain || config.ACME.Email != s.Email || (config.SMTP.Listen == "") != (s.Mail == setup.MailNone) || config.Agents[0].Name != "helper" || config.HTTP.TLS != "acme" {
			t.Errorf("%s: %+v", name, config)
		}
		for _, file := range files {
			info, err := os.Stat(file.Path)
			if err != nil || file.Kept || file.Mode != map[bool]string{true: "0644", false: "0600"}[filepath.Ext(file.Path) == ".service"] || info.Mode().Perm()&0o077 != 0 && file.Mode == "0600" {
				t.Errorf("%s: %+v is %v %v", name, file, info.Mode(), err)
			}
		}

		left, err := os.ReadDir(s.Directory)
		if err != nil || len(left) != len(files)+1 { // data_dir
			t.Errorf("%s: %v %v", name, left, err)
		}
		if _, err := s.Write(nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: a second time: %v", name, err)
		}
	}
}
